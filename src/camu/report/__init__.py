"""Charts and pages: what plans and runs look like."""
