// Window pooling, forward and backward. Tensors are [planes, height, width, channels] in units of N channels: NCHW is
// the case of one channel and a plane per channel of each sample. A thread walks down a column, so that windows which
// overlap share what is read.

// What one thread works on: a unit of channels, a column and a run of `walk` rows of a plane.
struct Work {
    i64 planes;
    Divider by_channels, by_columns, by_runs;
    int walk;

    int channel, column, run;
    i64 plane;

    DEVICE bool take() {
        const i64 item = (i64)blockIdx.x * blockDim.x + threadIdx.x;
        const i64 pixel = by_channels.divide(item), line = by_columns.divide(pixel);
        plane = by_runs.divide(line);
        channel = (int)(item - pixel * by_channels.divisor);
        column = (int)(pixel - line * by_columns.divisor);
        run = (int)(line - plane * by_runs.divisor);
        return plane < planes;
    }
};

// Where in its window a maximum lies, a byte each, or 32 bits where windows have more than 256 positions.
template <int N> DEVICE void store_places(void *places, i64 at, const int (&place)[N], bool large) {
    if (large) {
#pragma unroll
        for (int lane = 0; lane < N; lane++) ((int *)places)[at + lane] = place[lane];
    } else if (N == 1) {
        ((unsigned char *)places)[at] = (unsigned char)place[0];
    } else {
#pragma unroll
        for (int word = 0; word < N / 4; word++) {
            u32 bytes = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) bytes |= (u32)place[word * 4 % N + i % N] << (8 * i);
            ((u32 *)((unsigned char *)places + at))[word] = bytes;
        }
    }
}

template <int N> DEVICE void load_places(const void *places, i64 at, int (&place)[N], bool large) {
    if (large) {
#pragma unroll
        for (int lane = 0; lane < N; lane++) place[lane] = ((const int *)places)[at + lane];
    } else if (N == 1) {
        place[0] = ((const unsigned char *)places)[at];
    } else {
#pragma unroll
        for (int word = 0; word < N / 4; word++) {
            const u32 bytes = ((const u32 *)((const unsigned char *)places + at))[word];
#pragma unroll
            for (int i = 0; i < 4; i++) place[word * 4 % N + i % N] = (bytes >> (8 * i)) & 0xff;
        }
    }
}

// K: size and S: stride of square windows known when compiling, or 0. PLACES: keeps where the maxima lie, as
// row-of-window * width-of-window + column-of-window, of several equal ones the first, instead of their values.
template <bool MAX, bool PLACES, int N, int K, int S>
DEVICE void pool(const T *__restrict__ x, T *__restrict__ y, void *__restrict__ places, Windows down, Windows along,
                 Work work, bool large) {
    if (!work.take()) return;
    const int pixel = (int)work.by_channels.divisor * N;
    const T *from = x + work.plane * down.input * along.input * pixel + work.channel * N;
    const i64 to = work.plane * down.output * along.output * pixel + work.channel * N;
    const int begin = work.run * work.walk, left = along.begin(work.column);
    const int end = begin + work.walk < down.output ? begin + work.walk : down.output;

    const auto finish = [&](int out_h, float (&value)[N], const int (&place)[N]) {
        const i64 at = to + ((i64)out_h * along.output + work.column) * pixel;
        if (PLACES) {
            store_places<N>(places, at, place, large);
            return;
        }
        if (!MAX) {
            const float factor = 1.0f / ((float)down.count(out_h) * (float)along.count(work.column));
#pragma unroll
            for (int lane = 0; lane < N; lane++) value[lane] *= factor;
        }
        Unit<T, N> stored;
        stored.set(value);
        stored.store(y + at);
    };

    if (K) {
        // Rows and columns outside of the map are replaced by the nearest inside, which a maximum may take twice.
        const int SIZE = K ? K : 1, KEPT = K > S ? K - S : 0, STEP = KEPT ? S : 0;
        int offset[SIZE];
        bool inside[SIZE];
#pragma unroll
        for (int j = 0; j < K; j++) {
            offset[j] = along.clamp(left + j) * pixel;
            inside[j] = along.clamp(left + j) == left + j;
        }
        // Largest value or sum of one row of the window, and the column of the former.
        float values[SIZE][N];
        int columns[SIZE][N];
        const auto read = [&](int h, float (&value)[N], int (&column)[N]) {
            const int near = down.clamp(h);
            const T *row = from + (i64)near * along.input * pixel;
            Unit<T, N> units[SIZE];
#pragma unroll
            for (int j = 0; j < K; j++) units[j].load(row + offset[j]);
#pragma unroll
            for (int j = 0; j < K; j++) {
                float lanes[N];
                units[j].get(lanes);
#pragma unroll
                for (int lane = 0; lane < N; lane++) {
                    if (MAX && PLACES) {
                        if (j == 0 || lanes[lane] > value[lane]) {
                            value[lane] = lanes[lane];
                            column[lane] = j;
                        }
                    } else if (MAX) {
                        value[lane] = j == 0 ? lanes[lane] : fmaxf(value[lane], lanes[lane]);
                    } else {
                        const float term = inside[j] && near == h ? lanes[lane] : 0.0f;
                        value[lane] = j == 0 ? term : value[lane] + term;
                    }
                }
            }
        };
#pragma unroll
        for (int i = 0; i < KEPT; i++) read(down.begin(begin) + i, values[i + STEP], columns[i + STEP]);
        for (int out_h = begin; out_h < end; out_h++) {
            const int top = down.begin(out_h);
#pragma unroll
            for (int i = 0; i < KEPT; i++) {
#pragma unroll
                for (int lane = 0; lane < N; lane++) {
                    values[i][lane] = values[i + STEP][lane];
                    columns[i][lane] = columns[i + STEP][lane];
                }
            }
#pragma unroll
            for (int i = KEPT; i < K; i++) read(top + i, values[i], columns[i]);
            float result[N];
            int place[N];
            // The first row and column of the window that are in the map.
            const int first_row = top < 0 ? -top : 0, first_column = left < 0 ? -left : 0;
#pragma unroll
            for (int lane = 0; lane < N; lane++) {
                result[lane] = values[0][lane];
                int row = 0, column = PLACES ? columns[0][lane] : 0;
#pragma unroll
                for (int i = 1; i < K; i++) {
                    if (!MAX) {
                        result[lane] += values[i][lane];
                    } else if (!PLACES) {
                        result[lane] = fmaxf(result[lane], values[i][lane]);
                    } else if (values[i][lane] > result[lane]) {
                        result[lane] = values[i][lane];
                        row = i;
                        column = columns[i][lane];
                    }
                }
                row = row < first_row ? first_row : row;
                column = column < first_column ? first_column : column;
                place[lane] = row * K + column;
            }
            finish(out_h, result, place);
        }
    } else {
        const int right = along.end(work.column);
        const int from_w = left < 0 ? 0 : left, to_w = right < along.input ? right : along.input;
        for (int out_h = begin; out_h < end; out_h++) {
            const int top = down.begin(out_h), bottom = down.end(out_h);
            const int from_h = top < 0 ? 0 : top, to_h = bottom < down.input ? bottom : down.input;
            float result[N];
            int place[N];
#pragma unroll
            for (int lane = 0; lane < N; lane++) {
                result[lane] = MAX ? -INFINITE : 0.0f;
                place[lane] = (from_h - top) * (right - left) + from_w - left;
            }
            for (int h = from_h; h < to_h; h++) {
                const T *row = from + (i64)h * along.input * pixel;
#pragma unroll 4
                for (int w = from_w; w < to_w; w++) {
                    Unit<T, N> unit;
                    float lanes[N];
                    unit.load(row + w * pixel);
                    unit.get(lanes);
#pragma unroll
                    for (int lane = 0; lane < N; lane++) {
                        if (!MAX) {
                            result[lane] += lanes[lane];
                        } else if (lanes[lane] > result[lane]) {
                            result[lane] = lanes[lane];
                            place[lane] = (h - top) * (right - left) + w - left;
                        }
                    }
                }
            }
            finish(out_h, result, place);
        }
    }
}

// Each position of dx gathers from the windows over it: the gradients of those whose maximum it is (`places`), or its
// share of every mean.
//
// With p = h + padding = S i + r, r < S, the windows over row h are those i - a with S a + r < K: a thread takes the
// S rows of one i and, where a unit is more than a value, the S columns of one j.
template <bool MAX, int N, int K, int S>
DEVICE void spread_windows(const T *__restrict__ dy, const void *__restrict__ places, T *__restrict__ dx, Windows down,
                           Windows along, Work work) {
    const int OVER = (K - 1) / S + 1, COLUMNS = N > 1 ? S : 1;
    const int pixel = (int)work.by_channels.divisor * N;
    const i64 from = work.plane * down.output * along.output * pixel + work.channel * N;
    const int shift = COLUMNS == 1 ? (work.column + along.padding) % S : 0;
    const int nearest = COLUMNS == 1 ? (work.column + along.padding) / S : work.column;
    Unit<T, N> units[OVER][OVER];
    int place[OVER][OVER][N];
    bool inside[OVER][OVER];
#pragma unroll
    for (int a = 0; a < OVER; a++) {
#pragma unroll
        for (int b = 0; b < OVER; b++) {
            const int out_h = work.run - a, out_w = nearest - b;
            inside[a][b] = out_h >= 0 && out_h < down.output && out_w >= 0 && out_w < along.output && S * b + shift < K;
            if (inside[a][b]) {
                const i64 at = from + ((i64)out_h * along.output + out_w) * pixel;
                units[a][b].load(dy + at);
                if (MAX) load_places<N>(places, at, place[a][b], false);
            }
        }
    }
    float result[S][COLUMNS][N] = {};
#pragma unroll
    for (int a = 0; a < OVER; a++) {
#pragma unroll
        for (int b = 0; b < OVER; b++) {
            if (inside[a][b]) {
                float lanes[N];
                units[a][b].get(lanes);
                const float factor =
                    MAX ? 1.0f : 1.0f / ((float)down.count(work.run - a) * (float)along.count(nearest - b));
#pragma unroll
                for (int r = 0; r < S; r++) {
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++) {
                        if (S * a + r >= K || S * b + c >= K) continue;
#pragma unroll
                        for (int lane = 0; lane < N; lane++) {
                            const bool mine = !MAX || place[a][b][lane] == (S * a + r) * K + S * b + c + shift;
                            result[r][c][lane] += mine ? lanes[lane] * factor : 0.0f;
                        }
                    }
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < S; r++) {
        const int h = S * work.run + r - down.padding;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int w = COLUMNS == 1 ? work.column : S * work.column + c - along.padding;
            if (h < 0 || h >= down.input || w < 0 || w >= along.input) continue;
            Unit<T, N> stored;
            stored.set(result[r][c]);
            stored.store(dx + ((work.plane * down.input + h) * along.input + w) * pixel + work.channel * N);
        }
    }
}

// The same for any windows. Neighbouring rows are mostly covered by the same windows: where they are, a mean's
// gradient is that of the row above.
template <bool MAX, int N>
DEVICE void spread_any(const T *__restrict__ dy, const void *__restrict__ places, T *__restrict__ dx, Windows down,
                       Windows along, Work work, bool large) {
    const int pixel = (int)work.by_channels.divisor * N, w = work.column;
    const i64 from = work.plane * down.output * along.output * pixel + work.channel * N;
    const i64 to = work.plane * down.input * along.input * pixel + work.channel * N;
    const int begin = work.run * work.walk;
    const int end = begin + work.walk < down.input ? begin + work.walk : down.input;
    const int left = along.first(w), right = along.last(w);
    int top = down.first(begin), bottom = down.last(begin), top_end = down.end(top), next = down.begin(bottom + 1);
    bool changed = true;
    float result[N] = {};
    for (int h = begin; h < end; h++) {
        for (; top_end <= h; changed = true) top_end = down.end(++top);
        for (; next <= h && bottom + 1 < down.output; changed = true) next = down.begin(++bottom + 1);
        if (MAX || changed) {
            changed = false;
#pragma unroll
            for (int lane = 0; lane < N; lane++) result[lane] = 0.0f;
            for (int i = top; i <= bottom; i++) {
                for (int j = left; j <= right; j++) {
                    const i64 at = from + ((i64)i * along.output + j) * pixel;
                    Unit<T, N> unit;
                    float lanes[N];
                    int place[N];
                    unit.load(dy + at);
                    if (MAX) load_places<N>(places, at, place, large);
                    unit.get(lanes);
                    const int self = (h - down.begin(i)) * (along.end(j) - along.begin(j)) + w - along.begin(j);
                    const float factor = MAX ? 1.0f : 1.0f / ((float)down.count(i) * (float)along.count(j));
#pragma unroll
                    for (int lane = 0; lane < N; lane++)
                        result[lane] += !MAX || place[lane] == self ? lanes[lane] * factor : 0.0f;
                }
            }
        }
        Unit<T, N> stored;
        stored.set(result);
        stored.store(dx + to + ((i64)h * along.input + w) * pixel);
    }
}

template <bool MAX, int N, int K, int S>
DEVICE void pool_gradient(const T *dy, const void *places, T *dx, Windows down, Windows along, Work work, bool large) {
    if (!work.take()) return;
    if (K)
        spread_windows<MAX, N, K ? K : 1, K ? S : 1>(dy, places, dx, down, along, work);
    else
        spread_any<MAX, N>(dy, places, dx, down, along, work, large);
}

// `form` says which of the windows that networks mostly use these are: 1 is 2x2 with stride 2, 2 is 3x3 with stride 2,
// 3 is 3x3 with stride 1, 0 any other.
#define BY_FORM(function, arguments, ...)                                                                              \
    Windows down = {height, out_height, kernel_h, stride_h, padding_h};                                                \
    Windows along = {width, out_width, kernel_w, stride_w, padding_w};                                                 \
    const Work work = {planes,                                                                                         \
                       {channels, (u32)channels_multiplier, channels_shift},                                           \
                       {columns, (u32)columns_multiplier, columns_shift},                                              \
                       {runs, (u32)runs_multiplier, runs_shift},                                                       \
                       walk};                                                                                          \
    if (form) {                                                                                                        \
        down.kernel = along.kernel = form == 1 ? 2 : 3;                                                                \
        down.stride = along.stride = form == 3 ? 1 : 2;                                                                \
    }                                                                                                                  \
    if (wide) {                                                                                                        \
        if (form == 1) function<__VA_ARGS__, LANES, 2, 2> arguments;                                                   \
        if (form == 2) function<__VA_ARGS__, LANES, 3, 2> arguments;                                                   \
        if (form == 3) function<__VA_ARGS__, LANES, 3, 1> arguments;                                                   \
        if (form == 0) function<__VA_ARGS__, LANES, 0, 0> arguments;                                                   \
    } else {                                                                                                           \
        if (form == 1) function<__VA_ARGS__, 1, 2, 2> arguments;                                                       \
        if (form == 2) function<__VA_ARGS__, 1, 3, 2> arguments;                                                       \
        if (form == 3) function<__VA_ARGS__, 1, 3, 1> arguments;                                                       \
        if (form == 0) function<__VA_ARGS__, 1, 0, 0> arguments;                                                       \
    }

KERNEL(max_pool_forward)
(const T *x, T *y, int height, int width, int out_height, int out_width, int kernel_h, int kernel_w, int stride_h,
 int stride_w, int padding_h, int padding_w, i64 planes, i64 channels, int channels_multiplier, int channels_shift,
 i64 columns, int columns_multiplier, int columns_shift, i64 runs, int runs_multiplier, int runs_shift, int walk,
 int form, int wide) {
    BY_FORM(pool, (x, y, (void *)0, down, along, work, false), true, false)
}

KERNEL(avg_pool_forward)
(const T *x, T *y, int height, int width, int out_height, int out_width, int kernel_h, int kernel_w, int stride_h,
 int stride_w, int padding_h, int padding_w, i64 planes, i64 channels, int channels_multiplier, int channels_shift,
 i64 columns, int columns_multiplier, int columns_shift, i64 runs, int runs_multiplier, int runs_shift, int walk,
 int form, int wide) {
    BY_FORM(pool, (x, y, (void *)0, down, along, work, false), false, false)
}

KERNEL(max_pool_places)
(const T *x, void *places, int large, int height, int width, int out_height, int out_width, int kernel_h, int kernel_w,
 int stride_h, int stride_w, int padding_h, int padding_w, i64 planes, i64 channels, int channels_multiplier,
 int channels_shift, i64 columns, int columns_multiplier, int columns_shift, i64 runs, int runs_multiplier,
 int runs_shift, int walk, int form, int wide) {
    BY_FORM(pool, (x, (T *)0, places, down, along, work, large != 0), true, true)
}

KERNEL(max_pool_backward)
(const T *dy, const void *places, T *dx, int large, int height, int width, int out_height, int out_width, int kernel_h,
 int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w, i64 planes, i64 channels,
 int channels_multiplier, int channels_shift, i64 columns, int columns_multiplier, int columns_shift, i64 runs,
 int runs_multiplier, int runs_shift, int walk, int form, int wide) {
    BY_FORM(pool_gradient, (dy, places, dx, down, along, work, large != 0), true)
}

KERNEL(avg_pool_backward)
(const T *dy, T *dx, int height, int width, int out_height, int out_width, int kernel_h, int kernel_w, int stride_h,
 int stride_w, int padding_h, int padding_w, i64 planes, i64 channels, int channels_multiplier, int channels_shift,
 i64 columns, int columns_multiplier, int columns_shift, i64 runs, int runs_multiplier, int runs_shift, int walk,
 int form, int wide) {
    BY_FORM(pool_gradient, (dy, (const void *)0, dx, down, along, work, false), false)
}
