"""Others' published numbers, trained again by this engine and judged by rules fixed beforehand."""
