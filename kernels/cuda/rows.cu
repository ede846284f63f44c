// Softmax and layer norm: several threads hold a row in registers, so that it is read once. Rows longer than the
// registers are read again from memory in every pass.

// How the threads of a block lie along rows.
enum Lie {
    UNITS_OF_ROW,   // contiguous rows in 16-byte units; threadIdx.x along the row, threadIdx.y rows
    VALUES_OF_ROW,  // contiguous rows of any length, value by value
    CHANNELS_OF_MAP // rows are the channels of a position in NCHW; threadIdx.x positions, threadIdx.y along the row
};

template <Lie LIE> struct Row {
    static const int VALUES = LIE == UNITS_OF_ROW ? 32 : 16;
    static const int N = LIE == UNITS_OF_ROW ? LANES : 1;

    i64 index, start, stride;
    int length, self, width;
    bool active;

    // `count` rows of `row_length` values; `area` positions lie between two channels of a map.
    DEVICE Row(i64 count, int row_length, i64 area) {
        length = row_length;
        if (LIE == CHANNELS_OF_MAP) {
            index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
            self = threadIdx.y;
            width = blockDim.y;
            stride = area;
            start = index / area * (area * length) + index % area;
        } else {
            index = (i64)blockIdx.x * blockDim.y + threadIdx.y;
            self = threadIdx.x;
            width = blockDim.x;
            stride = 1;
            start = index * length;
        }
        active = index < count;
    }

    // Register chunks a row takes.
    DEVICE int chunks() const { return (length + VALUES * width - 1) / (VALUES * width); }

    // Unit of the row that this thread holds first in a chunk; the others follow at steps of `width`.
    DEVICE int first(int chunk) const { return chunk * (VALUES / N) * width + self; }

    // Units of a chunk that this thread holds, possibly more than there are registers for.
    DEVICE int held(int chunk) const { return active ? (length / N - first(chunk) + width - 1) / width : 0; }

    // Calls `f(register, position)` for every value of a chunk that exists.
    template <class F> DEVICE void each(int chunk, F f) const {
        const int units = held(chunk), begin = first(chunk);
#pragma unroll
        for (int k = 0; k < VALUES / N; k++) {
            if (k < units) {
#pragma unroll
                for (int lane = 0; lane < N; lane++) f(k * N + lane, (begin + k * width) * N + lane);
            }
        }
    }

    // Values between two units of a thread.
    DEVICE i64 step() const { return LIE == CHANNELS_OF_MAP ? width * stride : (i64)width * N; }
    DEVICE i64 begin(int chunk) const {
        return start + (LIE == CHANNELS_OF_MAP ? first(chunk) * stride : (i64)first(chunk) * N);
    }

    DEVICE void load(const T *from, int chunk, float (&values)[VALUES]) const {
        Unit<T, N> units[VALUES / N];
        const int count = held(chunk);
        const T *at = from + begin(chunk);
#pragma unroll
        for (int k = 0; k < VALUES / N; k++) {
            if (k < count) units[k].load(at);
            at += step();
        }
#pragma unroll
        for (int k = 0; k < VALUES / N; k++) {
            if (k < count) {
                float lanes[N];
                units[k].get(lanes);
#pragma unroll
                for (int lane = 0; lane < N; lane++) values[k * N + lane] = lanes[lane];
            }
        }
    }

    DEVICE void store(T *to, int chunk, const float (&values)[VALUES]) const {
        const int count = held(chunk);
        T *at = to + begin(chunk);
#pragma unroll
        for (int k = 0; k < VALUES / N; k++) {
            if (k < count) {
                float lanes[N];
#pragma unroll
                for (int lane = 0; lane < N; lane++) lanes[lane] = values[k * N + lane];
                Unit<T, N> unit;
                unit.set(lanes);
                unit.store(at);
            }
            at += step();
        }
    }

    template <class How> DEVICE float join(float value) const {
        return LIE == CHANNELS_OF_MAP ? join_along_y<How>(value) : join_along_x<How>(value);
    }
};

// Runs `body` for every chunk, loading it unless the whole row is in registers already.
#define EACH_CHUNK(row, chunk, load)                                                                                   \
    for (int chunk = 0, chunk##_end = row.chunks(); chunk < chunk##_end; chunk++)                                      \
        if (chunk##_end > 1 && (load, false)) {                                                                        \
        } else

template <Lie LIE> DEVICE void softmax(const T *x, T *y, i64 count, int length, i64 area) {
    Row<LIE> row(count, length, area);
    float values[Row<LIE>::VALUES];
    row.load(x, 0, values);
    float largest = -INFINITE;
    EACH_CHUNK(row, chunk, row.load(x, chunk, values)) {
        row.each(chunk, [&](int k, int) { largest = fmaxf(largest, values[k]); });
    }
    largest = row.template join<Largest>(largest);
    float sum = 0.0f;
    EACH_CHUNK(row, chunk, row.load(x, chunk, values)) {
        row.each(chunk, [&](int k, int) {
            values[k] = expf(values[k] - largest);
            sum += values[k];
        });
    }
    const float factor = 1.0f / row.template join<Sum>(sum);
    if (row.chunks() == 1) {
        row.each(0, [&](int k, int) { values[k] *= factor; });
        row.store(y, 0, values);
    } else {
        for (int chunk = 0; chunk < row.chunks(); chunk++) {
            row.load(x, chunk, values);
            row.each(chunk, [&](int k, int) { values[k] = expf(values[k] - largest) * factor; });
            row.store(y, chunk, values);
        }
    }
}

// dx = y (dy - sum(y dy))
template <Lie LIE> DEVICE void softmax_gradient(const T *y, const T *dy, T *dx, i64 count, int length, i64 area) {
    Row<LIE> row(count, length, area);
    float values[Row<LIE>::VALUES], gradients[Row<LIE>::VALUES];
    row.load(y, 0, values);
    row.load(dy, 0, gradients);
    float sum = 0.0f;
    EACH_CHUNK(row, chunk, (row.load(y, chunk, values), row.load(dy, chunk, gradients))) {
        row.each(chunk, [&](int k, int) { sum += values[k] * gradients[k]; });
    }
    sum = row.template join<Sum>(sum);
    EACH_CHUNK(row, chunk, (row.load(y, chunk, values), row.load(dy, chunk, gradients))) {
        row.each(chunk, [&](int k, int) { gradients[k] = values[k] * (gradients[k] - sum); });
        row.store(dx, chunk, gradients);
    }
}

template <Lie LIE>
DEVICE void layer_norm(const T *x, T *y, i64 count, int length, i64 area, const float *scale, const float *shift,
                       float *mean_of, float *reciprocal_of, float epsilon) {
    Row<LIE> row(count, length, area);
    float values[Row<LIE>::VALUES];
    row.load(x, 0, values);
    float sum = 0.0f, squares = 0.0f;
    EACH_CHUNK(row, chunk, row.load(x, chunk, values)) {
        row.each(chunk, [&](int k, int) { sum += values[k]; });
    }
    const float mean = row.template join<Sum>(sum) / length;
    EACH_CHUNK(row, chunk, row.load(x, chunk, values)) {
        row.each(chunk, [&](int k, int) { squares += (values[k] - mean) * (values[k] - mean); });
    }
    const float reciprocal = rsqrtf(row.template join<Sum>(squares) / length + epsilon);
    if (mean_of && row.active && row.self == 0) {
        mean_of[row.index] = mean;
        reciprocal_of[row.index] = reciprocal;
    }
    EACH_CHUNK(row, chunk, row.load(x, chunk, values)) {
        row.each(chunk, [&](int k, int c) {
            values[k] = (values[k] - mean) * reciprocal;
            if (scale) values[k] = values[k] * scale[c] + shift[c];
        });
        row.store(y, chunk, values);
    }
}

// dx = r (g - mean(g) - z mean(g z)), g = dy scale, z = (x - mean) r the normalized value.
template <Lie LIE>
DEVICE void layer_norm_gradient(const T *x, const T *dy, T *dx, i64 count, int length, i64 area, const float *scale,
                                const float *mean_of, const float *reciprocal_of) {
    Row<LIE> row(count, length, area);
    float values[Row<LIE>::VALUES], gradients[Row<LIE>::VALUES];
    row.load(x, 0, values);
    row.load(dy, 0, gradients);
    const float mean = row.active ? mean_of[row.index] : 0.0f;
    const float reciprocal = row.active ? reciprocal_of[row.index] : 0.0f;
    float sum = 0.0f, with_x = 0.0f;
    EACH_CHUNK(row, chunk, (row.load(x, chunk, values), row.load(dy, chunk, gradients))) {
        row.each(chunk, [&](int k, int c) {
            const float g = scale ? gradients[k] * scale[c] : gradients[k];
            sum += g;
            with_x += g * (values[k] - mean);
        });
    }
    sum = row.template join<Sum>(sum) / length;
    with_x = row.template join<Sum>(with_x) * reciprocal * reciprocal / length;
    EACH_CHUNK(row, chunk, (row.load(x, chunk, values), row.load(dy, chunk, gradients))) {
        row.each(chunk, [&](int k, int c) {
            const float g = scale ? gradients[k] * scale[c] : gradients[k];
            gradients[k] = reciprocal * (g - sum - (values[k] - mean) * with_x);
        });
        row.store(dx, chunk, gradients);
    }
}

// Three kernels for an operation, one for each way that threads lie.
#define ROWS(name, function, parameters, arguments)                                                                    \
    WIDE_KERNEL(name##_units) parameters { function<UNITS_OF_ROW> arguments; }                                         \
    WIDE_KERNEL(name##_values) parameters { function<VALUES_OF_ROW> arguments; }                                       \
    WIDE_KERNEL(name##_channels) parameters { function<CHANNELS_OF_MAP> arguments; }

ROWS(softmax_forward, softmax, (const T *x, T *y, i64 count, int length, i64 area), (x, y, count, length, area))
ROWS(softmax_backward, softmax_gradient, (const T *y, const T *dy, T *dx, i64 count, int length, i64 area),
     (y, dy, dx, count, length, area))
ROWS(layer_norm_forward, layer_norm,
     (const T *x, T *y, i64 count, int length, i64 area, const float *scale, const float *shift, float *mean,
      float *reciprocal, float epsilon),
     (x, y, count, length, area, scale, shift, mean, reciprocal, epsilon))
ROWS(layer_norm_backward, layer_norm_gradient,
     (const T *x, const T *dy, T *dx, i64 count, int length, i64 area, const float *scale, const float *mean,
      const float *reciprocal),
     (x, dy, dx, count, length, area, scale, mean, reciprocal))
