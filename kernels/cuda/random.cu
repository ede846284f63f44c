// Random numbers from a counter: a value depends on seed and index alone, whatever the grid.

// Writes y = keep ? x / (1 - p) : 0 and the mask of kept values. A value is dropped when its random bits are below
// `threshold` = p 2^32.
KERNEL(dropout_forward)(const T *x, T *y, unsigned char *mask, i64 n, i64 threshold, float factor, int seed) {
    const int UNITS = 2;
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
        if (at < whole) {
            float values[LANES];
            u32 words[LANES / 4] = {};
            units[k].get(values);
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                const bool keep = random_bits((u32)seed, at * LANES + lane) >= threshold;
                values[lane] = keep ? values[lane] * factor : 0.0f;
                words[lane / 4] |= (u32)keep << (lane % 4 * 8);
            }
            units[k].set(values);
            units[k].store(y + at * LANES);
#pragma unroll
            for (int i = 0; i < LANES / 4; i++) ((u32 *)(mask + at * LANES))[i] = words[i];
        }
    }
    const i64 rest = whole * LANES + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && rest < n) {
        const bool keep = random_bits((u32)seed, rest) >= threshold;
        narrow(keep ? widen(x[rest]) * factor : 0.0f, y[rest]);
        mask[rest] = keep;
    }
}

KERNEL(dropout_backward)(const T *dy, const unsigned char *mask, T *dx, i64 n, float factor) {
    const int UNITS = 2;
    const i64 whole = n / LANES;
    const i64 first = (i64)blockIdx.x * blockDim.x * UNITS + threadIdx.x;
    Unit<T, LANES> units[UNITS];
    u32 words[UNITS][LANES / 4];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < whole) {
            units[k].load(dy + at * LANES);
#pragma unroll
            for (int i = 0; i < LANES / 4; i++) words[k][i] = ((const u32 *)(mask + at * LANES))[i];
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < whole) {
            float values[LANES];
            units[k].get(values);
#pragma unroll
            for (int lane = 0; lane < LANES; lane++)
                values[lane] = words[k][lane / 4] >> (lane % 4 * 8) & 1 ? values[lane] * factor : 0.0f;
            units[k].set(values);
            units[k].store(dx + at * LANES);
        }
    }
    const i64 rest = whole * LANES + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && rest < n) narrow(mask[rest] ? widen(dy[rest]) * factor : 0.0f, dx[rest]);
}

// Normal values by Box and Muller, each from two random words of its own.
KERNEL(fill_normal)(T *y, i64 n, float deviation, int seed) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const u32 first = random_bits((u32)seed, 2 * i), second = random_bits((u32)seed, 2 * i + 1);
        // Uniform in (0, 1]: the logarithm stays finite.
        const float radius = sqrtf(-2.0f * logf(((first >> 8) + 1) * (1.0f / 16777216.0f)));
        narrow(deviation * radius * cosf(6.2831853f * ((second >> 8) * (1.0f / 16777216.0f))), y[i]);
    }
}

KERNEL(fill_constant)(T *y, i64 n, float value) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) narrow(value, y[i]);
}
