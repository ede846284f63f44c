// Softmax and layer norm: the threads of a row hold it in registers, so that it is read once. Rows longer than the
// registers are read again from memory in every pass.

// How the threads of a block lie along rows.
enum Lie {
    UNITS,   // contiguous rows of whole 16-byte units; threadIdx.x along the row, threadIdx.y rows
    RAGGED,  // contiguous rows that begin and end anywhere in a unit; the same threads
    CHANNELS // rows are the channels of a position in NCHW; threadIdx.x units of positions, threadIdx.y along the row
};

// N values of the storage format move together, PER of such units per thread.
template <Lie LIE_, int N_, int PER_> struct Row {
    static const Lie LIE = LIE_;
    static const int N = N_, PER = PER_;
    // Rows that a thread has a part of: as many as it has positions.
    static const int ROWS = LIE == CHANNELS ? N : 1;

    const i64 count, area;
    const int length, self, width;
    i64 index, start;
    int head, units, turn;

    // `count` rows of `length` values; `area` positions lie between two channels of a map.
    DEVICE Row(i64 count, int length, i64 area)
        : count(count), area(area), length(length), self(LIE == CHANNELS ? threadIdx.y : threadIdx.x),
          width(LIE == CHANNELS ? blockDim.y : blockDim.x), turn(0) {}

    // Rows that a block takes together.
    DEVICE int together() const { return LIE == CHANNELS ? blockDim.x * N : blockDim.y; }

    DEVICE void take(i64 group) {
        head = 0;
        if (LIE == CHANNELS) {
            index = (group * blockDim.x + threadIdx.x) * N;
            const i64 sample = index >> 31 ? index / area : (i64)((u32)index / (u32)area);
            start = sample * (area * length) + index - sample * area;
            units = length;
        } else {
            index = group * blockDim.y + threadIdx.y;
            start = index * length;
            if (LIE == RAGGED) head = (int)(start % N);
            start -= head;
            units = (head + length + N - 1) / N;
        }
        if (index >= count) units = 0;
    }

    DEVICE int chunks() const {
        const int whole = LIE == CHANNELS ? length : (length + (LIE == RAGGED ? N - 1 : 0) + N - 1) / N;
        return (whole + PER * width - 1) / (PER * width);
    }

    // The unit of the row that register `k` holds.
    DEVICE int unit(int chunk, int k) const { return (chunk * PER + k) * width + self; }
    DEVICE i64 at(int unit) const { return start + (LIE == CHANNELS ? unit * area : (i64)unit * N); }

    DEVICE bool valid(int unit, int lane) const {
        return LIE != RAGGED || (u32)(unit * N + lane - head) < (u32)length;
    }

    DEVICE void load(const T *from, int chunk, Unit<T, N> (&held)[PER]) const {
#pragma unroll
        for (int k = 0; k < PER; k++)
            if (unit(chunk, k) < units) held[k].load(from + at(unit(chunk, k)));
    }

    // Calls `f(register, unit)` for what exists of a chunk.
    template <class F> DEVICE void each(int chunk, F f) const {
#pragma unroll
        for (int k = 0; k < PER; k++)
            if (unit(chunk, k) < units) f(k, unit(chunk, k));
    }

    DEVICE void put(T *to, int unit, const float (&values)[N]) const {
        if (LIE != RAGGED || (valid(unit, 0) && valid(unit, N - 1))) {
            Unit<T, N> stored;
            stored.set(values);
            stored.store(to + at(unit));
        } else {
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                if (valid(unit, lane)) narrow(values[lane], to[at(unit) + lane]);
        }
    }

    // The values of a vector along the row that belong to a unit; `otherwise` where there is none.
    DEVICE void along(const float *from, int unit, float otherwise, float (&values)[N]) const {
        if (LIE == UNITS && from) {
            read(from + (i64)unit * N, values);
            return;
        }
#pragma unroll
        for (int lane = 0; lane < N; lane++) {
            const int place = LIE == CHANNELS ? unit : unit * N + lane - head;
            values[lane] = from && valid(unit, lane) ? from[place] : otherwise;
        }
    }

    // The statistics of a thread's rows.
    DEVICE void of_rows(const float *from, float (&values)[ROWS]) const {
        if (units) {
            read(from + index, values);
        } else {
#pragma unroll
            for (int i = 0; i < ROWS; i++) values[i] = 0.0f;
        }
    }

    // Joins `COUNT` values of each thread over the threads of a row; two buffers, so that one barrier is enough.
    template <class How, int COUNT> DEVICE void join(float (&values)[COUNT]) {
        const int lanes = LIE == CHANNELS ? (blockDim.x < 32 ? 32 : 0) : (width < 32 ? width : 32);
        for (int step = lanes / 2; step >= (LIE == CHANNELS ? (int)blockDim.x : 1); step /= 2) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                values[i] = How::join(values[i], __shfl_xor_sync(0xffffffffu, values[i], step));
        }
        const int thread = threadIdx.y * blockDim.x + threadIdx.x;
        const int warps = LIE == CHANNELS ? blockDim.x * blockDim.y / 32 : width / 32;
        if (warps < 2) return;
        const int first = LIE == CHANNELS ? 0 : threadIdx.y * warps;
        // What a warp leaves: its rows' values, of as many threads as have different rows.
        const int ACROSS = LIE == CHANNELS ? (N > 1 ? 8 : 32) : 1;
        __shared__ float shared[2][16][COUNT][ACROSS];
        const int column = LIE == CHANNELS ? threadIdx.x : 0;
        if (thread % 32 < ACROSS) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) shared[turn][thread / 32][i][column] = values[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++) values[i] = shared[turn][first][i][column];
        for (int warp = 1; warp < warps; warp++) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) values[i] = How::join(values[i], shared[turn][first + warp][i][column]);
        }
        turn ^= 1;
    }

  private:
    template <int COUNT> static DEVICE void read(const float *from, float (&values)[COUNT]) {
        if (COUNT % 4 == 0) {
#pragma unroll
            for (int i = 0; i < COUNT; i += 4) {
                const float4 four = *(const float4 *)(from + i);
                values[i] = four.x;
                values[i + 1 % COUNT] = four.y;
                values[i + 2 % COUNT] = four.z;
                values[i + 3 % COUNT] = four.w;
            }
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++) values[i] = from[i];
        }
    }
};

// Runs `load` and what follows for every chunk; a row in one chunk is loaded already.
#define EACH_CHUNK(row, chunk, load)                                                                                   \
    for (int chunk = 0, chunk##_end = row.chunks(); chunk < chunk##_end; chunk++)                                      \
        if (chunk##_end > 1 && (load, false)) {                                                                        \
        } else

// As exact as the storage format asks for.
DEVICE float exponential(float x, float) { return expf(x); }
template <class S> DEVICE float exponential(float x, S) { return __expf(x); }

template <class R> DEVICE void softmax(R row, const T *x, T *y) {
    const int N = R::N, ROWS = R::ROWS;
    Unit<T, N> held[R::PER];
    float values[R::PER][N], largest[ROWS], sum[ROWS];
    row.take(blockIdx.x);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        largest[i] = -INFINITE;
        sum[i] = 0.0f;
    }
    const auto load = [&](int chunk) {
        row.load(x, chunk, held);
        row.each(chunk, [&](int k, int) { held[k].get(values[k]); });
    };
    const auto raise = [&](int chunk) {
        row.each(chunk, [&](int k, int) {
#pragma unroll
            for (int lane = 0; lane < N; lane++) values[k][lane] = exponential(values[k][lane] - largest[lane % ROWS], T());
        });
    };
    load(0);
    EACH_CHUNK(row, chunk, load(chunk)) {
        row.each(chunk, [&](int k, int unit) {
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                if (row.valid(unit, lane)) largest[lane % ROWS] = fmaxf(largest[lane % ROWS], values[k][lane]);
        });
    }
    row.template join<Largest>(largest);
    EACH_CHUNK(row, chunk, load(chunk)) {
        raise(chunk);
        row.each(chunk, [&](int k, int unit) {
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                if (row.valid(unit, lane)) sum[lane % ROWS] += values[k][lane];
        });
    }
    row.template join<Sum>(sum);
#pragma unroll
    for (int i = 0; i < ROWS; i++) sum[i] = 1.0f / sum[i];
    EACH_CHUNK(row, chunk, (load(chunk), raise(chunk))) {
        row.each(chunk, [&](int k, int unit) {
#pragma unroll
            for (int lane = 0; lane < N; lane++) values[k][lane] *= sum[lane % ROWS];
            row.put(y, unit, values[k]);
        });
    }
}

// dx = y (dy - sum(y dy))
template <class R> DEVICE void softmax_gradient(R row, const T *y, const T *dy, T *dx) {
    const int N = R::N, ROWS = R::ROWS;
    Unit<T, N> held[R::PER], held_dy[R::PER];
    float sum[ROWS];
    row.take(blockIdx.x);
#pragma unroll
    for (int i = 0; i < ROWS; i++) sum[i] = 0.0f;
    row.load(y, 0, held);
    row.load(dy, 0, held_dy);
    EACH_CHUNK(row, chunk, (row.load(y, chunk, held), row.load(dy, chunk, held_dy))) {
        row.each(chunk, [&](int k, int unit) {
            float values[N], gradients[N];
            held[k].get(values);
            held_dy[k].get(gradients);
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                if (row.valid(unit, lane)) sum[lane % ROWS] += values[lane] * gradients[lane];
        });
    }
    row.template join<Sum>(sum);
    EACH_CHUNK(row, chunk, (row.load(y, chunk, held), row.load(dy, chunk, held_dy))) {
        row.each(chunk, [&](int k, int unit) {
            float values[N], gradients[N];
            held[k].get(values);
            held_dy[k].get(gradients);
#pragma unroll
            for (int lane = 0; lane < N; lane++) values[lane] *= gradients[lane] - sum[lane % ROWS];
            row.put(dx, unit, values);
        });
    }
}

template <class R>
DEVICE void layer_norm(R row, const T *x, T *y, const float *scale, const float *shift, float *mean_of,
                       float *reciprocal_of, float epsilon) {
    const int N = R::N, ROWS = R::ROWS;
    Unit<T, N> held[R::PER];
    float mean[ROWS], reciprocal[ROWS];
    row.take(blockIdx.x);
#pragma unroll
    for (int i = 0; i < ROWS; i++) mean[i] = reciprocal[i] = 0.0f;
    row.load(x, 0, held);
    EACH_CHUNK(row, chunk, row.load(x, chunk, held)) {
        row.each(chunk, [&](int k, int unit) {
            float values[N];
            held[k].get(values);
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                if (row.valid(unit, lane)) mean[lane % ROWS] += values[lane];
        });
    }
    row.template join<Sum>(mean);
#pragma unroll
    for (int i = 0; i < ROWS; i++) mean[i] /= row.length;
    EACH_CHUNK(row, chunk, row.load(x, chunk, held)) {
        row.each(chunk, [&](int k, int unit) {
            float values[N];
            held[k].get(values);
#pragma unroll
            for (int lane = 0; lane < N; lane++) {
                const float centered = values[lane] - mean[lane % ROWS];
                if (row.valid(unit, lane)) reciprocal[lane % ROWS] += centered * centered;
            }
        });
    }
    row.template join<Sum>(reciprocal);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        reciprocal[i] = rsqrtf(reciprocal[i] / row.length + epsilon);
        if (mean_of && row.units && row.self == 0) {
            mean_of[row.index + i] = mean[i];
            reciprocal_of[row.index + i] = reciprocal[i];
        }
    }
    EACH_CHUNK(row, chunk, row.load(x, chunk, held)) {
        row.each(chunk, [&](int k, int unit) {
            float values[N], factor[N], offset[N];
            held[k].get(values);
            row.along(scale, unit, 1.0f, factor);
            row.along(shift, unit, 0.0f, offset);
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                values[lane] = (values[lane] - mean[lane % ROWS]) * reciprocal[lane % ROWS] * factor[lane] + offset[lane];
            row.put(y, unit, values);
        });
    }
}

// What a block leaves of a unit's columns: sums over all its threads that hold the same.
template <class R, int COLUMNS>
DEVICE void leave_columns(float (&sums)[2][COLUMNS], int unit, int length, float *partial) {
    const auto place = [&](int s, int column) { return partial + ((i64)s * gridDim.x + blockIdx.x) * length + column; };
    if (R::LIE == CHANNELS) {
#pragma unroll
        for (int s = 0; s < 2; s++) {
            for (int step = blockDim.x / 2; step > 0; step /= 2)
                sums[s][0] += __shfl_xor_sync(0xffffffffu, sums[s][0], step);
            if (threadIdx.x == 0 && unit < length) *place(s, unit) = sums[s][0];
        }
        return;
    }
    if (blockDim.y == 1) {
#pragma unroll
        for (int i = 0; i < 2 * COLUMNS; i++)
            if (unit * COLUMNS < length) *place(i / COLUMNS, unit * COLUMNS + i % COLUMNS) = sums[i / COLUMNS][i % COLUMNS];
        return;
    }
    __shared__ float shared[2 * COLUMNS][256];
    const int first = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * COLUMNS; i++) shared[i][first] = sums[i / COLUMNS][i % COLUMNS];
    __syncthreads();
    for (int i = threadIdx.y; i < 2 * COLUMNS && unit * COLUMNS < length; i += blockDim.y) {
        float sum = 0.0f;
        for (int row = 0; row < blockDim.y; row++) sum += shared[i][row * blockDim.x + threadIdx.x];
        *place(i / COLUMNS, unit * COLUMNS + i % COLUMNS) = sum;
    }
}

// dx = r (g - mean(g) - z mean(g z)), g = dy scale, z = (x - mean) r the normalized value. LEARNED: a block also leaves
// its share of the gradients of scale and shift, sum(dy z) and sum(dy) over rows, as [2][block][length] in `partial`;
// its rows are in registers as a whole.
template <bool LEARNED, class R>
DEVICE void layer_norm_gradient(R row, const T *x, const T *dy, T *dx, const float *scale, const float *mean_of,
                                const float *reciprocal_of, float *partial) {
    const int N = R::N, ROWS = R::ROWS, PER = R::PER;
    // A thread's units of the rows to come have the same columns; all lanes of a map's unit the same channel.
    const int COLUMNS = R::LIE == CHANNELS ? 1 : N;
    float learned[PER][2][COLUMNS] = {};
    const i64 groups = (row.count + row.together() - 1) / row.together();
    for (i64 group = blockIdx.x; group < groups; group += gridDim.x) {
        Unit<T, N> held[PER], held_dy[PER];
        float mean[ROWS], reciprocal[ROWS], sums[2 * ROWS] = {};
        row.take(group);
        row.load(x, 0, held);
        row.load(dy, 0, held_dy);
        row.of_rows(mean_of, mean);
        row.of_rows(reciprocal_of, reciprocal);
        EACH_CHUNK(row, chunk, (row.load(x, chunk, held), row.load(dy, chunk, held_dy))) {
            row.each(chunk, [&](int k, int unit) {
                float values[N], gradients[N], factor[N];
                held[k].get(values);
                held_dy[k].get(gradients);
                row.along(scale, unit, 1.0f, factor);
#pragma unroll
                for (int lane = 0; lane < N; lane++) {
                    const float z = (values[lane] - mean[lane % ROWS]) * reciprocal[lane % ROWS];
                    const float g = row.valid(unit, lane) ? gradients[lane] * factor[lane] : 0.0f;
                    sums[lane % ROWS] += g;
                    sums[ROWS + lane % ROWS] += row.valid(unit, lane) ? g * z : 0.0f;
                    if (LEARNED) {
                        learned[k][0][lane % COLUMNS] += gradients[lane] * z;
                        learned[k][1][lane % COLUMNS] += gradients[lane];
                    }
                }
            });
        }
        row.template join<Sum>(sums);
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) sums[i] /= row.length;
        EACH_CHUNK(row, chunk, (row.load(x, chunk, held), row.load(dy, chunk, held_dy))) {
            row.each(chunk, [&](int k, int unit) {
                float values[N], gradients[N], factor[N];
                held[k].get(values);
                held_dy[k].get(gradients);
                row.along(scale, unit, 1.0f, factor);
#pragma unroll
                for (int lane = 0; lane < N; lane++) {
                    const float z = (values[lane] - mean[lane % ROWS]) * reciprocal[lane % ROWS];
                    const float g = gradients[lane] * factor[lane];
                    values[lane] = reciprocal[lane % ROWS] * (g - sums[lane % ROWS] - z * sums[ROWS + lane % ROWS]);
                }
                row.put(dx, unit, values);
            });
        }
    }
    if (LEARNED) {
#pragma unroll
        for (int k = 0; k < PER; k++) leave_columns<R>(learned[k], row.unit(0, k), row.length, partial);
    }
}

// Five kernels for an operation: how threads lie, and how many units each holds.
#define ROWS(name, parameters, function, ...)                                                                          \
    WIDE_KERNEL(name##_few) parameters { function(Row<UNITS, LANES, 2>(count, length, area), __VA_ARGS__); }           \
    WIDE_KERNEL(name##_units) parameters { function(Row<UNITS, LANES, 32 / LANES>(count, length, area), __VA_ARGS__); } \
    WIDE_KERNEL(name##_ragged) parameters {                                                                            \
        function(Row<RAGGED, LANES, 32 / LANES>(count, length, area), __VA_ARGS__);                                    \
    }                                                                                                                  \
    WIDE_KERNEL(name##_channels) parameters { function(Row<CHANNELS, 4, 8>(count, length, area), __VA_ARGS__); }       \
    WIDE_KERNEL(name##_positions) parameters { function(Row<CHANNELS, 1, 16>(count, length, area), __VA_ARGS__); }

ROWS(softmax_forward, (const T *x, T *y, i64 count, int length, i64 area), softmax, x, y)
ROWS(softmax_backward, (const T *y, const T *dy, T *dx, i64 count, int length, i64 area), softmax_gradient, y, dy, dx)
ROWS(layer_norm_forward,
     (const T *x, T *y, i64 count, int length, i64 area, const float *scale, const float *shift, float *mean,
      float *reciprocal, float epsilon),
     layer_norm, x, y, scale, shift, mean, reciprocal, epsilon)
ROWS(layer_norm_backward,
     (const T *x, const T *dy, T *dx, i64 count, int length, i64 area, const float *scale, const float *mean,
      const float *reciprocal),
     layer_norm_gradient<false>, x, dy, dx, scale, mean, reciprocal, (float *)0)

WIDE_KERNEL(layer_norm_learned_units)
(const T *x, const T *dy, T *dx, i64 count, int length, i64 area, const float *scale, const float *mean,
 const float *reciprocal, float *partial) {
    layer_norm_gradient<true>(Row<UNITS, LANES, 16 / LANES>(count, length, area), x, dy, dx, scale, mean, reciprocal,
                              partial);
}

WIDE_KERNEL(layer_norm_learned_channels)
(const T *x, const T *dy, T *dx, i64 count, int length, i64 area, const float *scale, const float *mean,
 const float *reciprocal, float *partial) {
    layer_norm_gradient<true>(Row<CHANNELS, 4, 8>(count, length, area), x, dy, dx, scale, mean, reciprocal, partial);
}

WIDE_KERNEL(layer_norm_learned_positions)
(const T *x, const T *dy, T *dx, i64 count, int length, i64 area, const float *scale, const float *mean,
 const float *reciprocal, float *partial) {
    layer_norm_gradient<true>(Row<CHANNELS, 1, 16>(count, length, area), x, dy, dx, scale, mean, reciprocal, partial);
}
