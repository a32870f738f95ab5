// Sums over updates, bit by bit those of numpy, which passes over memory several times for each.
#include "kernels.h"

namespace {

// Rows are added one after another to each number of the sum.
template <int ROWS>
void add_rows(double* __restrict__ total, const double* factors, const float* const* rows,
              int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    double sum = total[i];
    for (int r = 0; r < ROWS; r++) sum += factors[r] * (double)rows[r][i];
    total[i] = sum;
  }
}

}  // namespace

// Adds so many rows, each times its factor. Reading and writing the sum takes as long as reading a
// row, so eight are added at once.
EXPORT void camu_add_rows(double* total, const double* factors, const float* const* rows, int64_t most,
                          int64_t count) {
  int64_t done = 0;
  for (; done + 8 <= most; done += 8) add_rows<8>(total, factors + done, rows + done, count);
  for (; done < most; done++) add_rows<1>(total, factors + done, rows + done, count);
}

// In pairs, as numpy adds: halves, down to 128 numbers, which are added in eight columns.
double sum_of_squares(const float* numbers, int64_t count) {
  if (count > 128) {
    const int64_t half = count / 2 / 8 * 8;
    return sum_of_squares(numbers, half) + sum_of_squares(numbers + half, count - half);
  }
  double columns[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int c = 0; c < 8; c++) columns[c] += (double)numbers[i + c] * numbers[i + c];
  double sum = ((columns[0] + columns[1]) + (columns[2] + columns[3])) +
               ((columns[4] + columns[5]) + (columns[6] + columns[7]));
  for (; i < count; i++) sum += (double)numbers[i] * numbers[i];
  return sum;
}
