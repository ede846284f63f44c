// Moving values without computing: whole copies, columns of a matrix (concatenation), windows of a map (padding),
// conversion between formats.

// Exact copy: the ceiling that bandwidth-bound kernels are compared with.
KERNEL(copy)(const T *x, T *y, i64 n) {
    const int UNITS = 4;
    const i64 whole = n / LANES;
    const i64 first = (i64)blockIdx.x * blockDim.x * UNITS + threadIdx.x;
    Unit<T, LANES> units[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < whole) units[k].load(x + at * LANES);
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < whole) units[k].store(y + at * LANES);
    }
    const i64 rest = whole * LANES + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && rest < n) y[rest] = x[rest];
}

template <int N> DEVICE void columns(T *whole, i64 pitch, i64 rows, i64 start, T *part, i64 width, bool gather) {
    const int UNITS = 4;
    const i64 across = width / N, units = rows * across;
    const i64 first = (i64)blockIdx.x * blockDim.x * UNITS + threadIdx.x;
    Unit<T, N> moved[UNITS];
    i64 at[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 unit = first + k * blockDim.x;
        if (unit < units) {
            const i64 row = unit / across;
            at[k] = row * pitch + start + (unit - row * across) * N;
            moved[k].load(gather ? part + unit * N : whole + at[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 unit = first + k * blockDim.x;
        if (unit < units) moved[k].store(gather ? whole + at[k] : part + unit * N);
    }
}

// Up to four matrices of `rows` rows side by side, from column `start` of a matrix of `pitch` columns; blockIdx.y is
// the matrix. `gather` copies them into the whole, else the whole is split into them.
KERNEL(columns)
(T *whole, i64 pitch, i64 rows, i64 start, int gather, int wide, T *part0, i64 width0, T *part1, i64 width1, T *part2,
 i64 width2, T *part3, i64 width3) {
    T *part = part0;
    i64 width = width0;
    if (blockIdx.y > 0) {
        start += width0;
        part = part1;
        width = width1;
    }
    if (blockIdx.y > 1) {
        start += width1;
        part = part2;
        width = width2;
    }
    if (blockIdx.y > 2) {
        start += width2;
        part = part3;
        width = width3;
    }
    if (wide)
        columns<LANES>(whole, pitch, rows, start, part, width, gather != 0);
    else
        columns<1>(whole, pitch, rows, start, part, width, gather != 0);
}

// y [planes, height, width] is the window of x [planes, in_height, in_width] that begins at (top, left), zero outside
// of x. Widths and left count units of N values.
template <int N>
DEVICE void window(const T *__restrict__ x, T *__restrict__ y, i64 planes, i64 in_height, i64 in_width, i64 height,
                   i64 width, i64 top, i64 left) {
    const int ROWS = 4;
    const i64 rows = planes * height;
    const i64 first = (i64)blockIdx.x * blockDim.y * ROWS + threadIdx.y;
    for (i64 unit = (i64)blockIdx.y * blockDim.x + threadIdx.x; unit < width; unit += (i64)gridDim.y * blockDim.x) {
        Unit<T, N> moved[ROWS];
        const i64 from_w = unit + left;
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const i64 row = first + k * blockDim.y;
            if (row < rows) {
                const i64 plane = row / height, from_h = row - plane * height + top;
                if (from_h >= 0 && from_h < in_height && from_w >= 0 && from_w < in_width) {
                    moved[k].load(x + ((plane * in_height + from_h) * in_width + from_w) * N);
                } else {
                    const float zeros[N] = {};
                    moved[k].set(zeros);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const i64 row = first + k * blockDim.y;
            if (row < rows) moved[k].store(y + (row * width + unit) * N);
        }
    }
}

KERNEL(window)
(const T *x, T *y, i64 planes, i64 in_height, i64 in_width, i64 height, i64 width, i64 top, i64 left, int wide) {
    if (wide)
        window<LANES>(x, y, planes, in_height, in_width, height, width, top, left);
    else
        window<1>(x, y, planes, in_height, in_width, height, width, top, left);
}

template <class From, class To> DEVICE void convert(const From *x, To *y, i64 n) {
    const int VALUES = 8;
    const i64 first = (i64)blockIdx.x * blockDim.x * VALUES + threadIdx.x;
    From values[VALUES];
#pragma unroll
    for (int k = 0; k < VALUES; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < n) values[k] = x[at];
    }
#pragma unroll
    for (int k = 0; k < VALUES; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < n) narrow(widen(values[k]), y[at]);
    }
}

KERNEL(cast_from_f32)(const float *x, T *y, i64 n) { convert(x, y, n); }
KERNEL(cast_to_f32)(const T *x, float *y, i64 n) { convert(x, y, n); }
