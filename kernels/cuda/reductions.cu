// Reductions to one or two values per channel, over batch and positions or over the positions of one sample.
//
// An operation `F` has `SUMS` accumulators joined by `F::How`; `channel(g)` fetches its constants, `visit` takes a
// value (and may give one to write), `finish` turns the accumulators into results. Work on one channel is split into
// gridDim.y parts; with one part the result is finished at once, else the parts are left in `partial`, as
// [accumulator][part][group], for the kernel `_finish`.

template <class F> DEVICE void leave(F &f, float (&sums)[F::SUMS], float *partial, i64 group, i64 groups) {
    if (gridDim.y == 1) {
        f.finish(group, sums);
    } else {
#pragma unroll
        for (int s = 0; s < F::SUMS; s++) partial[((i64)s * gridDim.y + blockIdx.y) * groups + group] = sums[s];
    }
}

// Groups whose values lie in `segments` runs of `size`, run s of group g at (s groups + g) size: maps in NCHW.
// blockDim.x threads work on a group, blockDim.y groups share a block.
template <int N, class F>
DEVICE void reduce_runs(F f, const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ dx,
                        float *__restrict__ partial, i64 segments, i64 groups, i64 size, Divider by_run) {
    const int UNITS = (F::INPUTS > 1 ? 2 : 4) * (N > 1 ? 1 : 2);
    const i64 group = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    const bool active = group < groups;
    const i64 total = active ? by_run.divisor * segments : 0;
    const i64 step = (i64)gridDim.y * blockDim.x;
    if (active) f.channel(group);
    float sums[F::SUMS];
#pragma unroll
    for (int s = 0; s < F::SUMS; s++) sums[s] = F::How::neutral();
    for (i64 unit = (i64)blockIdx.y * blockDim.x + threadIdx.x; unit < total; unit += UNITS * step) {
        Unit<T, N> units_x[UNITS], units_dy[UNITS];
        i64 at[UNITS], position[UNITS];
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const i64 u = unit + k * step;
            const i64 segment = segments == 1 ? 0 : by_run.divide(u);
            position[k] = u * N;
            at[k] = (segment * (groups - 1) + group) * size + u * N;
            if (u < total) {
                if (F::INPUTS > 0) units_x[k].load(x + at[k]);
                if (F::INPUTS > 1) units_dy[k].load(dy + at[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            if (unit + k * step < total) {
                float values_x[N] = {}, values_dy[N] = {}, values[N];
                if (F::INPUTS > 0) units_x[k].get(values_x);
                if (F::INPUTS > 1) units_dy[k].get(values_dy);
#pragma unroll
                for (int lane = 0; lane < N; lane++)
                    values[lane] = f.visit(sums, position[k] + lane, values_x[lane], values_dy[lane]);
                if (F::WRITES) {
                    Unit<T, N> unit_dx;
                    unit_dx.set(values);
                    unit_dx.store(dx + at[k]);
                }
            }
        }
    }
#pragma unroll
    for (int s = 0; s < F::SUMS; s++) sums[s] = join_along_x<typename F::How>(sums[s]);
    if (active && threadIdx.x == 0) leave(f, sums, partial, group, groups);
}

// Groups that are the columns of [rows, channels], separately for each blockIdx.z: channels last, rows of features.
// Block (x: units of channels, y: rows).
template <int N, class F>
DEVICE void reduce_columns(F f, const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ dx,
                           float *__restrict__ partial, i64 rows, i64 channels) {
    const int ROWS = F::INPUTS > 1 ? 4 : 8;
    const i64 c = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const bool active = c < channels;
    const i64 first_group = blockIdx.z * channels + c;
    const i64 start = blockIdx.z * rows * channels + c;
    const i64 step = (i64)gridDim.y * blockDim.y;
    F each[N];
    float sums[N][F::SUMS];
#pragma unroll
    for (int lane = 0; lane < N; lane++) {
        each[lane] = f;
        if (active) each[lane].channel(first_group + lane);
#pragma unroll
        for (int s = 0; s < F::SUMS; s++) sums[lane][s] = F::How::neutral();
    }
    if (active) {
        for (i64 row = (i64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += ROWS * step) {
            Unit<T, N> units_x[ROWS], units_dy[ROWS];
#pragma unroll
            for (int k = 0; k < ROWS; k++) {
                const i64 at = start + (row + k * step) * channels;
                if (row + k * step < rows) {
                    if (F::INPUTS > 0) units_x[k].load(x + at);
                    if (F::INPUTS > 1) units_dy[k].load(dy + at);
                }
            }
#pragma unroll
            for (int k = 0; k < ROWS; k++) {
                const i64 position = row + k * step;
                if (position < rows) {
                    float values_x[N] = {}, values_dy[N] = {}, values[N];
                    if (F::INPUTS > 0) units_x[k].get(values_x);
                    if (F::INPUTS > 1) units_dy[k].get(values_dy);
#pragma unroll
                    for (int lane = 0; lane < N; lane++)
                        values[lane] = each[lane].visit(sums[lane], position, values_x[lane], values_dy[lane]);
                    if (F::WRITES) {
                        Unit<T, N> unit_dx;
                        unit_dx.set(values);
                        unit_dx.store(dx + start + position * channels);
                    }
                }
            }
        }
    }
    // All sums at once through shared memory; the rows of it are shifted against each other to avoid bank conflicts.
    const int THREADS = 256, PITCH = THREADS + 32 / N;
    __shared__ float shared[F::SUMS * N * PITCH];
    const int self = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int lane = 0; lane < N; lane++) {
#pragma unroll
        for (int s = 0; s < F::SUMS; s++) shared[(s * N + lane) * PITCH + self] = sums[lane][s];
    }
    __syncthreads();
    const int column = self / N, lane = self % N;
    const i64 group = ((i64)blockIdx.x * blockDim.x + column) * N + lane;
    if (column < blockDim.x && group < channels) {
        float joined[F::SUMS];
#pragma unroll
        for (int s = 0; s < F::SUMS; s++) {
            joined[s] = F::How::neutral();
            for (int row = 0; row < blockDim.y; row++)
                joined[s] = F::How::join(joined[s], shared[(s * N + lane) * PITCH + row * blockDim.x + column]);
        }
        const i64 index = blockIdx.z * channels + group;
        f.channel(index);
        leave(f, joined, partial, index, gridDim.z * channels);
    }
}

// Joins what the parts left. Block (x: groups, y: parts).
template <class F> DEVICE void reduce_parts(F f, const float *partial, i64 groups, int parts) {
    const i64 group = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const bool active = group < groups;
    float sums[F::SUMS];
#pragma unroll
    for (int s = 0; s < F::SUMS; s++) sums[s] = F::How::neutral();
    if (active) {
#pragma unroll 8
        for (int part = threadIdx.y; part < parts; part += blockDim.y) {
#pragma unroll
            for (int s = 0; s < F::SUMS; s++)
                sums[s] = F::How::join(sums[s], partial[((i64)s * parts + part) * groups + group]);
        }
    }
#pragma unroll
    for (int s = 0; s < F::SUMS; s++) sums[s] = join_along_y<typename F::How>(sums[s]);
    if (active && threadIdx.y == 0) {
        f.channel(group);
        f.finish(group, sums);
    }
}

// Three kernels for an operation; what follows its name are its own parameters. `wide` allows 16-byte units.
#define REDUCTION(name, operation, ...)                                                                                \
    KERNEL(name##_runs)                                                                                                \
    (const T *x, const T *dy, T *dx, float *partial, i64 segments, i64 groups, i64 size, i64 run, int run_multiplier,  \
     int run_shift, int wide, __VA_ARGS__) {                                                                           \
        const Divider by_run = {run, (u32)run_multiplier, run_shift};                                                  \
        if (wide)                                                                                                      \
            reduce_runs<LANES>(operation, x, dy, dx, partial, segments, groups, size, by_run);                         \
        else                                                                                                           \
            reduce_runs<1>(operation, x, dy, dx, partial, segments, groups, size, by_run);                             \
    }                                                                                                                  \
    KERNEL(name##_columns)                                                                                             \
    (const T *x, const T *dy, T *dx, float *partial, i64 rows, i64 channels, int wide, __VA_ARGS__) {                  \
        if (wide)                                                                                                      \
            reduce_columns<LANES>(operation, x, dy, dx, partial, rows, channels);                                      \
        else                                                                                                           \
            reduce_columns<1>(operation, x, dy, dx, partial, rows, channels);                                          \
    }                                                                                                                  \
    KERNEL(name##_finish)(const T *x, const float *partial, i64 groups, int parts, __VA_ARGS__) {                      \
        reduce_parts(operation, partial, groups, parts);                                                               \
    }

// Mean and reciprocal standard deviation, from sums of x - p and (x - p)^2 with p the channel's first value: without
// it, a mean far from 0 would cancel the variance's digits.
struct Statistics {
    typedef Sum How;
    static const int INPUTS = 1, SUMS = 2;
    static const bool WRITES = false;
    const T *x;
    i64 inner;
    float count, epsilon, momentum;
    float *mean, *reciprocal, *running_mean, *running_variance;
    float pivot;

    DEVICE void channel(i64 c) { pivot = widen(x[c * inner]); }
    DEVICE float visit(float (&sums)[2], i64, float value, float) const {
        const float from_pivot = value - pivot;
        sums[0] += from_pivot;
        sums[1] += from_pivot * from_pivot;
        return 0.0f;
    }
    DEVICE void finish(i64 c, const float (&sums)[2]) const {
        const float from_pivot = sums[0] / count;
        const float variance = fmaxf(sums[1] / count - from_pivot * from_pivot, 0.0f);
        mean[c] = pivot + from_pivot;
        reciprocal[c] = rsqrtf(variance + epsilon);
        if (running_mean) {
            const float unbiased = count > 1.0f ? variance * count / (count - 1.0f) : variance;
            running_mean[c] += momentum * (mean[c] - running_mean[c]);
            running_variance[c] += momentum * (unbiased - running_variance[c]);
        }
    }
};

REDUCTION(batch_norm_statistics,
          (Statistics{x, inner, count, epsilon, momentum, mean, reciprocal, running_mean, running_variance}), i64 inner,
          float count, float epsilon, float momentum, float *mean, float *reciprocal, float *running_mean,
          float *running_variance)

// sum(dy) and sum(dy (x - mean) r), kept in `sums` and, where learned, written as gradients of shift and scale.
struct NormGradients {
    typedef Sum How;
    static const int INPUTS = 2, SUMS = 2;
    static const bool WRITES = false;
    const float *mean, *reciprocal;
    i64 groups;
    float *sums_of_channels, *grad_scale, *grad_shift;
    float center;

    DEVICE void channel(i64 c) { center = mean[c]; }
    DEVICE float visit(float (&sums)[2], i64, float x, float dy) const {
        sums[0] += dy;
        sums[1] += dy * (x - center);
        return 0.0f;
    }
    DEVICE void finish(i64 c, const float (&sums)[2]) const {
        const float with_x = sums[1] * reciprocal[c];
        sums_of_channels[c] = sums[0];
        sums_of_channels[groups + c] = with_x;
        if (grad_scale) {
            grad_scale[c] = with_x;
            grad_shift[c] = sums[0];
        }
    }
};

REDUCTION(batch_norm_gradients, (NormGradients{mean, reciprocal, channel_count, sums, grad_scale, grad_shift}),
          i64 channel_count, const float *mean, const float *reciprocal, float *sums, float *grad_scale,
          float *grad_shift)

// Gradients of a layer norm's scale and shift: mean and reciprocal standard deviation belong to a position.
struct PositionGradients {
    typedef Sum How;
    static const int INPUTS = 2, SUMS = 2;
    static const bool WRITES = false;
    const float *mean, *reciprocal;
    float *grad_scale, *grad_shift;

    DEVICE void channel(i64) {}
    DEVICE float visit(float (&sums)[2], i64 position, float x, float dy) const {
        sums[0] += dy * (x - mean[position]) * reciprocal[position];
        sums[1] += dy;
        return 0.0f;
    }
    DEVICE void finish(i64 c, const float (&sums)[2]) const {
        grad_scale[c] = sums[0];
        grad_shift[c] = sums[1];
    }
};

REDUCTION(layer_norm_gradients, (PositionGradients{mean, reciprocal, grad_scale, grad_shift}), const float *mean,
          const float *reciprocal, float *grad_scale, float *grad_shift)

// sum(dy x) and sum(dy)
struct ScaleGradients {
    typedef Sum How;
    static const int INPUTS = 2, SUMS = 2;
    static const bool WRITES = false;
    float *grad_scale, *grad_shift;

    DEVICE void channel(i64) {}
    DEVICE float visit(float (&sums)[2], i64, float x, float dy) const {
        sums[0] += dy * x;
        sums[1] += dy;
        return 0.0f;
    }
    DEVICE void finish(i64 c, const float (&sums)[2]) const {
        grad_scale[c] = sums[0];
        if (grad_shift) grad_shift[c] = sums[1];
    }
};

REDUCTION(scale_gradients, (ScaleGradients{grad_scale, grad_shift}), float *grad_scale, float *grad_shift)

// sum or mean (`factor` = 1 / size) of the values of x.
struct Average {
    typedef Sum How;
    static const int INPUTS = 1, SUMS = 1;
    static const bool WRITES = false;
    T *result;
    float factor;

    DEVICE void channel(i64) {}
    DEVICE float visit(float (&sums)[1], i64, float x, float) const {
        sums[0] += x;
        return 0.0f;
    }
    DEVICE void finish(i64 g, const float (&sums)[1]) const { narrow(sums[0] * factor, result[g]); }
};

REDUCTION(average, (Average{result, factor}), T *result, float factor)

struct Maximum {
    typedef Largest How;
    static const int INPUTS = 1, SUMS = 1;
    static const bool WRITES = false;
    T *result;

    DEVICE void channel(i64) {}
    DEVICE float visit(float (&sums)[1], i64, float x, float) const {
        sums[0] = fmaxf(sums[0], x);
        return 0.0f;
    }
    DEVICE void finish(i64 g, const float (&sums)[1]) const { narrow(sums[0], result[g]); }
};

REDUCTION(maximum, (Maximum{result}), T *result)

// Both gradients of a map times a factor per channel and sample: dy factor, and sum(dy x).
struct FactorBackward {
    typedef Sum How;
    static const int INPUTS = 2, SUMS = 1;
    static const bool WRITES = true;
    const T *factors;
    T *grad_factors;
    float factor;

    DEVICE void channel(i64 g) { factor = widen(factors[g]); }
    DEVICE float visit(float (&sums)[1], i64, float x, float dy) const {
        sums[0] += dy * x;
        return dy * factor;
    }
    DEVICE void finish(i64 g, const float (&sums)[1]) const { narrow(sums[0], grad_factors[g]); }
};

REDUCTION(factor_backward, (FactorBackward{factors, grad_factors}), const T *factors, T *grad_factors)
