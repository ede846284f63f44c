// Maps whose constants belong to a channel: inference of batch norm, scale, bias, a factor per channel.
//
// An operation `F` has `channel(c)`, which fetches its constants, and `value(x, dy)`. `INPUTS` says which of x and dy
// it reads.

// `LATEST_FIRST` says that a reduction has just read the same tensors: what it read last is still in the cache.

// Any layout. Value e belongs to channel (e / inner) % channels: inner is the map's area in NCHW, 1 where channels
// come last. With `by_group`, every so many values have constants of their own (inner is 1 then).
template <class F>
DEVICE void channels_flat(const F &f, const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ y, i64 n,
                          Divider by_inner, Divider by_channels, Divider by_group) {
    const int UNITS = F::INPUTS > 0 ? 2 : 4;
    const i64 inner = by_inner.divisor, channels = by_channels.divisor;
    const i64 block = F::LATEST_FIRST ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const i64 first = block * blockDim.x * UNITS + threadIdx.x;
    const auto channel_of = [&](i64 run) {
        const i64 c = run - by_channels.divide(run) * channels;
        return by_group.divisor > 0 ? c + by_group.divide(run) * channels : c;
    };
    Unit<T, LANES> units_x[UNITS], units_dy[UNITS];
    F own[UNITS];
    int left[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = (first + k * blockDim.x) * LANES;
        if (at + LANES <= n) {
            if (F::INPUTS > 0) units_x[k].load(x + at);
            if (F::INPUTS > 1) units_dy[k].load(dy + at);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = (first + k * blockDim.x) * LANES;
        own[k] = f;
        if (at < n) {
            const i64 run = by_inner.divide(at);
            const i64 rest = (run + 1) * inner - at;
            left[k] = rest < LANES ? (int)rest : LANES;
            own[k].channel(channel_of(run));
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = (first + k * blockDim.x) * LANES;
        if (at + LANES <= n) {
            float values_x[LANES] = {}, values_dy[LANES] = {}, values[LANES];
            if (F::INPUTS > 0) units_x[k].get(values_x);
            if (F::INPUTS > 1) units_dy[k].get(values_dy);
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) values[lane] = own[k].value(values_x[lane], values_dy[lane]);
            // The values that belong to channels further on.
            for (int begin = left[k]; begin < LANES; begin += (int)inner) {
                own[k].channel(channel_of(by_inner.divide(at + begin)));
#pragma unroll
                for (int lane = 0; lane < LANES; lane++)
                    if (lane >= begin) values[lane] = own[k].value(values_x[lane], values_dy[lane]);
            }
            Unit<T, LANES> unit_y;
            unit_y.set(values);
            unit_y.store(y + at);
        } else {
            for (i64 e = at; e < n; e++) {
                own[k].channel(channel_of(by_inner.divide(e)));
                narrow(own[k].value(F::INPUTS > 0 ? widen(x[e]) : 0.0f, F::INPUTS > 1 ? widen(dy[e]) : 0.0f), y[e]);
            }
        }
    }
}

// Channels last, their number a multiple of LANES: a thread keeps the constants of its channels and walks over rows.
// Block (x: units of channels, y: rows), grid (x: units of channels, y: rows, z: groups of `rows` rows).
template <class F>
DEVICE void channels_last(const F &f, const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ y, i64 rows,
                          i64 channels) {
    const int ROWS = 4;
    const i64 c = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * LANES;
    if (c >= channels) return;
    F each[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) {
        each[lane] = f;
        each[lane].channel(blockIdx.z * channels + c + lane);
    }
    const i64 start = blockIdx.z * rows * channels + c;
    const i64 step = (i64)gridDim.y * blockDim.y;
    const auto place = [&](i64 row) { return start + (F::LATEST_FIRST ? rows - 1 - row : row) * channels; };
    for (i64 row = (i64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += ROWS * step) {
        Unit<T, LANES> units_x[ROWS], units_dy[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const i64 at = place(row + k * step);
            if (row + k * step < rows) {
                if (F::INPUTS > 0) units_x[k].load(x + at);
                if (F::INPUTS > 1) units_dy[k].load(dy + at);
            }
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            if (row + k * step < rows) {
                float values_x[LANES] = {}, values_dy[LANES] = {}, values[LANES];
                if (F::INPUTS > 0) units_x[k].get(values_x);
                if (F::INPUTS > 1) units_dy[k].get(values_dy);
#pragma unroll
                for (int lane = 0; lane < LANES; lane++) values[lane] = each[lane].value(values_x[lane], values_dy[lane]);
                Unit<T, LANES> unit_y;
                unit_y.set(values);
                unit_y.store(y + place(row + k * step));
            }
        }
    }
}

// Two kernels for an operation; what follows its name are its own parameters.
#define CHANNELS(name, operation, ...)                                                                                 \
    KERNEL(name##_flat)                                                                                                \
    (const T *x, const T *dy, T *y, i64 n, i64 inner, int inner_multiplier, int inner_shift, i64 channels,             \
     int channels_multiplier, int channels_shift, i64 group, int group_multiplier, int group_shift, __VA_ARGS__) {     \
        const Divider by_inner = {inner, (u32)inner_multiplier, inner_shift};                                          \
        const Divider by_channels = {channels, (u32)channels_multiplier, channels_shift};                              \
        const Divider by_group = {group, (u32)group_multiplier, group_shift};                                          \
        channels_flat(operation, x, dy, y, n, by_inner, by_channels, by_group);                                        \
    }                                                                                                                  \
    KERNEL(name##_last)(const T *x, const T *dy, T *y, i64 rows, i64 channels, __VA_ARGS__) {                          \
        channels_last(operation, x, dy, y, rows, channels);                                                            \
    }

// (x - mean) / deviation scale + shift. `deviation` is the variance, or the reciprocal standard deviation itself;
// scale and shift may be null.
struct Normalize {
    static const int INPUTS = 1;
    static const bool LATEST_FIRST = true;
    const float *mean, *deviation, *scale, *shift;
    float epsilon;
    bool variance;
    float center, factor, offset;

    DEVICE void channel(i64 c) {
        const float reciprocal = variance ? rsqrtf(deviation[c] + epsilon) : deviation[c];
        center = mean[c];
        factor = scale ? reciprocal * scale[c] : reciprocal;
        offset = shift ? shift[c] : 0.0f;
    }
    // The mean is subtracted first: with it folded into the offset, a mean far from 0 would cost digits.
    DEVICE float value(float x, float) const { return (x - center) * factor + offset; }
};

CHANNELS(batch_norm_inference, (Normalize{mean, variance, scale, shift, epsilon, true}), const float *mean,
         const float *variance, const float *scale, const float *shift, float epsilon)
CHANNELS(batch_norm_normalize, (Normalize{mean, reciprocal, scale, shift, 0.0f, false}), const float *mean,
         const float *reciprocal, const float *scale, const float *shift)

// dx = scale r (dy - sum(dy) / m - (x - mean) r^2 sum(dy (x - mean)) / m), with r the reciprocal standard deviation and
// m the number of values of a channel; `sums` holds sum(dy), then r sum(dy (x - mean)) of every channel.
struct NormalizeBackward {
    static const int INPUTS = 2;
    static const bool LATEST_FIRST = true;
    const float *mean, *reciprocal, *scale, *sums;
    i64 channels;
    float per_value;
    float center, of_dy, of_x, offset;

    DEVICE void channel(i64 c) {
        const float r = reciprocal[c];
        of_dy = scale ? r * scale[c] : r;
        of_x = -of_dy * r * sums[channels + c] * per_value;
        offset = -of_dy * sums[c] * per_value;
        center = mean[c];
    }
    DEVICE float value(float x, float dy) const { return of_dy * dy + of_x * (x - center) + offset; }
};

CHANNELS(batch_norm_backward, (NormalizeBackward{mean, reciprocal, scale, sums, channels, per_value}),
         const float *mean, const float *reciprocal, const float *scale, const float *sums, float per_value)

struct Scale {
    static const int INPUTS = 1;
    static const bool LATEST_FIRST = false;
    const float *scale, *shift;
    float factor, offset;

    DEVICE void channel(i64 c) {
        factor = scale[c];
        offset = shift ? shift[c] : 0.0f;
    }
    DEVICE float value(float x, float) const { return x * factor + offset; }
};

CHANNELS(scale, (Scale{scale, shift}), const float *scale, const float *shift)

struct Bias {
    static const int INPUTS = 1;
    static const bool LATEST_FIRST = false;
    const T *bias;
    float offset;

    DEVICE void channel(i64 c) { offset = widen(bias[c]); }
    DEVICE float value(float x, float) const { return x + offset; }
};

CHANNELS(bias, (Bias{bias}), const T *bias)

// A factor per channel and sample.
struct Factor {
    static const int INPUTS = 1;
    static const bool LATEST_FIRST = false;
    const T *factors;
    float factor;

    DEVICE void channel(i64 c) { factor = widen(factors[c]); }
    DEVICE float value(float x, float) const { return x * factor; }
};

CHANNELS(factor, (Factor{factors}), const T *factors)

// Spreads one value per channel and sample over its map.
struct Spread {
    static const int INPUTS = 0;
    static const bool LATEST_FIRST = false;
    const T *values;
    float factor;
    float spread;

    DEVICE void channel(i64 c) { spread = widen(values[c]) * factor; }
    DEVICE float value(float, float) const { return spread; }
};

CHANNELS(spread, (Spread{values, factor}), const T *values, float factor)
