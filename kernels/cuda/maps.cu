// Window pooling and padding of maps in NCHW, whose rows seldom fill 16-byte units: a block copies whole units of what
// it reads into shared memory, as planes lie there back to back, computes in it and writes whole units.

extern __shared__ uint4 shared_units[];

// What a block writes: rows `from` to `to` of a plane, or all rows of `planes` planes.
struct Tile {
    i64 plane;
    int planes, from, to;
    bool whole;

    DEVICE Tile(i64 all, int together, int splits, int rows, int height) {
        const int block = blockIdx.x / splits;
        plane = (i64)block * together;
        planes = all - plane < together ? (int)(all - plane) : together;
        from = (blockIdx.x - block * splits) * rows;
        to = from + rows < height ? from + rows : height;
        whole = splits == 1;
    }
};

// Rows `first` to `last` of a tile's planes in shared memory, at their place within 16-byte units.
template <class S> struct Rows {
    static const int PER_UNIT = 16 / sizeof(S);
    S *values;
    int width, first, last, count, head;
    i64 flat;

    // At `at` bytes of the shared memory; a map of `height` rows.
    DEVICE Rows(const Tile &tile, int height, int width, int first, int last, int at)
        : width(width), first(first), last(last) {
        flat = (tile.plane * height + first) * width;
        head = (int)(flat % PER_UNIT);
        count = last > first ? tile.planes * (last - first) * width : 0;
        values = (S *)((char *)shared_units + at) + head;
    }
    // Row `h` of a plane of the tile.
    DEVICE S *row(int plane, int h) const { return values + (plane * (last - first) + h - first) * width; }
    DEVICE int units() const { return count ? (head + count + PER_UNIT - 1) / PER_UNIT : 0; }

    // Units are read as a whole: an allocation does not end within one.
    DEVICE void load(const S *tensor) const {
        const int TOGETHER = 4, all = units();
        const uint4 *from = (const uint4 *)(tensor + (flat - head));
        uint4 *to = (uint4 *)(values - head);
        for (int i = threadIdx.x; i < all; i += TOGETHER * blockDim.x) {
            uint4 held[TOGETHER];
#pragma unroll
            for (int k = 0; k < TOGETHER; k++)
                if (i + k * blockDim.x < all) held[k] = from[i + k * blockDim.x];
#pragma unroll
            for (int k = 0; k < TOGETHER; k++)
                if (i + k * blockDim.x < all) to[i + k * blockDim.x] = held[k];
        }
    }
    DEVICE void store(S *tensor) const {
        uint4 *to = (uint4 *)(tensor + (flat - head));
        const uint4 *from = (const uint4 *)(values - head);
        for (int i = threadIdx.x, all = units(); i < all; i += blockDim.x) {
            const int begin = i * PER_UNIT - head;
            if (begin >= 0 && begin + PER_UNIT <= count) {
                to[i] = from[i];
            } else {
                for (int k = begin; k < begin + PER_UNIT; k++)
                    if (k >= 0 && k < count) tensor[flat + k] = values[k];
            }
        }
    }
};

// Calls `f(plane, column, begin, end)` for the columns of the tile's planes, in runs of `walk` rows.
template <class F> DEVICE void each_column(const Tile &tile, int columns, int from, int to, int walk, F f) {
    const u32 runs = (to - from + walk - 1) / walk, items = tile.planes * runs * columns;
    for (u32 item = threadIdx.x; item < items; item += blockDim.x) {
        const u32 rest = item / columns, plane = rest / runs;
        const int begin = from + (int)(rest - plane * runs) * walk;
        f((int)plane, (int)(item - rest * columns), begin, begin + walk < to ? begin + walk : to);
    }
}

// K: size and S: stride of square windows known when compiling, or 0. PLACES: gives the place of the maximum,
// row-of-window * width-of-window + column-of-window, of several equal ones the first, instead of its value.
// `finish(out_h, value, place)` takes the results of a column from row `begin` to row `end`.
template <bool MAX, bool PLACES, int K, int S, class F>
DEVICE void pool_column(const Rows<T> &x, int plane, const Windows &down, const Windows &along, int column, int begin,
                        int end, F finish) {
    const int left = along.begin(column);
    if (K) {
        // Rows and columns outside of the map are replaced by the nearest inside, which a maximum may take twice.
        const int SIZE = K ? K : 1, KEPT = K > S ? K - S : 0, STEP = KEPT ? S : 0;
        int offset[SIZE];
        bool inside[SIZE];
#pragma unroll
        for (int j = 0; j < K; j++) {
            offset[j] = along.clamp(left + j);
            inside[j] = offset[j] == left + j;
        }
        // Largest value or sum of one row of the window, and the column of the former.
        float values[SIZE];
        int columns[SIZE];
        const auto read = [&](int h, float &value, int &place) {
            const int near = down.clamp(h);
            const T *row = x.row(plane, near);
            place = 0;
#pragma unroll
            for (int j = 0; j < K; j++) {
                const float one = widen(row[offset[j]]);
                if (PLACES) {
                    if (j > 0 && one > value) place = j;
                }
                if (MAX)
                    value = j == 0 ? one : fmaxf(value, one);
                else
                    value = (j == 0 ? 0.0f : value) + (inside[j] ? one : 0.0f);
            }
            if (!MAX && near != h) value = 0.0f;
        };
#pragma unroll
        for (int i = 0; i < KEPT; i++) read(down.begin(begin) + i, values[i + STEP], columns[i + STEP]);
        for (int out_h = begin; out_h < end; out_h++) {
            const int top = down.begin(out_h);
#pragma unroll
            for (int i = 0; i < KEPT; i++) {
                values[i] = values[i + STEP];
                columns[i] = columns[i + STEP];
            }
#pragma unroll
            for (int i = KEPT; i < K; i++) read(top + i, values[i], columns[i]);
            float result = values[0];
            int row = 0, place = columns[0];
#pragma unroll
            for (int i = 1; i < K; i++) {
                if (PLACES && values[i] > result) {
                    row = i;
                    place = columns[i];
                }
                result = MAX ? fmaxf(result, values[i]) : result + values[i];
            }
            // The first row and column of the window that are in the map.
            if (PLACES) {
                row = row + top < 0 ? -top : row;
                place = place + left < 0 ? -left : place;
            }
            finish(out_h, result, row * K + place);
        }
    } else {
        const int right = along.end(column), from_w = left < 0 ? 0 : left;
        const int to_w = right < along.input ? right : along.input;
        for (int out_h = begin; out_h < end; out_h++) {
            const int top = down.begin(out_h), bottom = down.end(out_h);
            const int from_h = top < 0 ? 0 : top, to_h = bottom < down.input ? bottom : down.input;
            float result = MAX ? -INFINITE : 0.0f;
            int place = (from_h - top) * (right - left) + from_w - left;
            for (int h = from_h; h < to_h; h++) {
                const T *row = x.row(plane, h);
#pragma unroll 4
                for (int w = from_w; w < to_w; w++) {
                    const float one = widen(row[w]);
                    if (!MAX) {
                        result += one;
                    } else if (one > result) {
                        result = one;
                        place = (h - top) * (right - left) + w - left;
                    }
                }
            }
            finish(out_h, result, place);
        }
    }
}

template <bool MAX, int K, int S>
DEVICE void pool_map(const T *x, T *y, const Tile &tile, const Windows &down, const Windows &along, int walk,
                     int result_at) {
    const int from = tile.whole ? 0 : down.clamp(down.begin(tile.from));
    const int to = tile.whole ? down.input : down.clamp(down.end(tile.to - 1) - 1) + 1;
    const Rows<T> source(tile, down.input, along.input, from, to, 0);
    const Rows<T> result(tile, down.output, along.output, tile.from, tile.to, result_at);
    source.load(x);
    __syncthreads();
    each_column(tile, along.output, tile.from, tile.to, walk, [&](int plane, int column, int begin, int end) {
        const float across = MAX ? 1.0f : 1.0f / along.count(column);
        pool_column<MAX, false, K, S>(source, plane, down, along, column, begin, end,
                                      [&](int out_h, float value, int) {
                                          if (!MAX) value *= across / down.count(out_h);
                                          narrow(value, result.row(plane, out_h)[column]);
                                      });
    });
    __syncthreads();
    result.store(y);
}

// The gradient of one position of x from the windows over it.
template <bool MAX>
DEVICE float gather(const Rows<T> &dy, const Rows<u16> &places, int plane, const Windows &down, const Windows &along,
                    int h, int w, int top, int bottom, int left, int right) {
    float sum = 0.0f;
    for (int i = top; i <= bottom; i++) {
        for (int j = left; j <= right; j++) {
            const float one = widen(dy.row(plane, i)[j]);
            if (MAX) {
                const int self = (h - down.begin(i)) * (along.end(j) - along.begin(j)) + w - along.begin(j);
                if (places.row(plane, i)[j] == self) sum += one;
            } else {
                sum += one / ((float)down.count(i) * (float)along.count(j));
            }
        }
    }
    return sum;
}

// With p = h + padding = S i + r, r < S, the windows over row h are those i - a with S a + r < K: a thread takes the
// S rows of one i and the S columns of one j.
template <bool MAX, int K, int S>
DEVICE void gather_square(const Rows<T> &dy, const Rows<u16> &places, const Rows<T> &dx, int plane,
                          const Windows &down, const Windows &along, int i, int j) {
    const int OVER = (K - 1) / S + 1;
    float result[S][S] = {};
#pragma unroll
    for (int a = 0; a < OVER; a++) {
#pragma unroll
        for (int b = 0; b < OVER; b++) {
            const int out_h = i - a, out_w = j - b;
            // Windows over rows of other tiles alone are not here.
            if (out_h < dy.first || out_h >= dy.last || out_w < 0 || out_w >= along.output) continue;
            float one = widen(dy.row(plane, out_h)[out_w]);
            int place = 0;
            if (MAX)
                place = places.row(plane, out_h)[out_w];
            else
                one /= (float)down.count(out_h) * (float)along.count(out_w);
#pragma unroll
            for (int r = 0; r < S; r++) {
#pragma unroll
                for (int c = 0; c < S; c++) {
                    if (S * a + r >= K || S * b + c >= K) continue;
                    result[r][c] += !MAX || place == (S * a + r) * K + S * b + c ? one : 0.0f;
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < S; r++) {
        const int h = S * i + r - down.padding;
#pragma unroll
        for (int c = 0; c < S; c++) {
            const int w = S * j + c - along.padding;
            if (h >= dx.first && h < dx.last && w >= 0 && w < along.input) narrow(result[r][c], dx.row(plane, h)[w]);
        }
    }
}

template <bool MAX, int K, int S>
DEVICE void pool_map_gradient(const T *x, const T *dy, T *dx, const Tile &tile, const Windows &down,
                              const Windows &along, int walk, int dy_at, int places_at, int result_at) {
    // The windows over the tile's rows, and the rows that they cover.
    const int top = tile.whole ? 0 : down.first(tile.from), bottom = tile.whole ? down.output - 1 : down.last(tile.to - 1);
    const Rows<T> gradient(tile, down.output, along.output, top, bottom + 1, dy_at);
    const Rows<u16> places(tile, down.output, along.output, top, bottom + 1, places_at);
    const Rows<T> result(tile, down.input, along.input, tile.from, tile.to, result_at);
    gradient.load(dy);
    if (MAX) {
        const int from = tile.whole || bottom < top ? 0 : down.clamp(down.begin(top));
        const int to = tile.whole || bottom < top ? down.input : down.clamp(down.end(bottom) - 1) + 1;
        const Rows<T> source(tile, down.input, along.input, from, to, 0);
        if (bottom >= top) source.load(x);
        __syncthreads();
        each_column(tile, along.output, top, bottom + 1, walk, [&](int plane, int column, int begin, int end) {
            pool_column<true, true, K, S>(
                source, plane, down, along, column, begin, end,
                [&](int out_h, float, int place) { places.row(plane, out_h)[column] = (u16)place; });
        });
    }
    __syncthreads();
    if (K) {
        const int from = (tile.from + down.padding) / (K ? S : 1), to = (tile.to - 1 + down.padding) / (K ? S : 1) + 1;
        const int columns = (along.input - 1 + along.padding) / (K ? S : 1) + 1;
        each_column(tile, columns, from, to, 1, [&](int plane, int j, int i, int) {
            gather_square<MAX, K ? K : 1, K ? S : 1>(gradient, places, result, plane, down, along, i, j);
        });
    } else {
        each_column(tile, along.input, tile.from, tile.to, walk, [&](int plane, int w, int begin, int end) {
            const int left = along.first(w), right = along.last(w);
            int first = down.first(begin), last = down.last(begin), first_end = down.end(first);
            int next = down.begin(last + 1);
            bool changed = true;
            float value = 0.0f;
            // Neighbouring rows are mostly covered by the same windows: then a mean's gradient is that of the row above.
            for (int h = begin; h < end; h++) {
                for (; first_end <= h; changed = true) first_end = down.end(++first);
                for (; next <= h && last + 1 < down.output; changed = true) next = down.begin(++last + 1);
                if (MAX || changed)
                    value = gather<MAX>(gradient, places, plane, down, along, h, w, first, last, left, right);
                changed = false;
                narrow(value, result.row(plane, h)[w]);
            }
        });
    }
    __syncthreads();
    result.store(dx);
}

// `form` says which of the windows that networks mostly use these are: 1 is 2x2 with stride 2, 2 is 3x3 with stride 2,
// 3 is 3x3 with stride 1, 0 any other.
#define BY_FORM(rows_of_result, call, first)                                                                           \
    Windows down = {height, out_height, kernel_h, stride_h, padding_h};                                                \
    Windows along = {width, out_width, kernel_w, stride_w, padding_w};                                                 \
    const Tile tile(planes, together, splits, rows, rows_of_result);                                                   \
    if (form) {                                                                                                        \
        down.kernel = along.kernel = form == 1 ? 2 : 3;                                                                \
        down.stride = along.stride = form == 3 ? 1 : 2;                                                                \
    }                                                                                                                  \
    if (form == 1) call(first, 2, 2);                                                                                  \
    if (form == 2) call(first, 3, 2);                                                                                  \
    if (form == 3) call(first, 3, 1);                                                                                  \
    if (form == 0) call(first, 0, 0);
#define POOL(max, k, s) pool_map<max, k, s>(x, y, tile, down, along, walk, result_at)
#define GRADIENT(max, k, s) pool_map_gradient<max, k, s>(x, dy, dx, tile, down, along, walk, dy_at, places_at, result_at)

KERNEL(map_max_pool_forward)
(const T *x, T *y, i64 planes, int together, int splits, int rows, int walk, int result_at, int height, int width,
 int out_height, int out_width, int kernel_h, int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w,
 int form) {
    BY_FORM(out_height, POOL, true)
}

KERNEL(map_avg_pool_forward)
(const T *x, T *y, i64 planes, int together, int splits, int rows, int walk, int result_at, int height, int width,
 int out_height, int out_width, int kernel_h, int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w,
 int form) {
    BY_FORM(out_height, POOL, false)
}

KERNEL(map_max_pool_backward)
(const T *x, const T *dy, T *dx, i64 planes, int together, int splits, int rows, int walk, int dy_at, int places_at,
 int result_at, int height, int width, int out_height, int out_width, int kernel_h, int kernel_w, int stride_h,
 int stride_w, int padding_h, int padding_w, int form) {
    BY_FORM(height, GRADIENT, true)
}

KERNEL(map_avg_pool_backward)
(const T *x, const T *dy, T *dx, i64 planes, int together, int splits, int rows, int walk, int dy_at, int places_at,
 int result_at, int height, int width, int out_height, int out_width, int kernel_h, int kernel_w, int stride_h,
 int stride_w, int padding_h, int padding_w, int form) {
    BY_FORM(height, GRADIENT, false)
}

// y [planes, height, width] is the window of x [planes, in_height, in_width] that begins at (top, left), zero outside
// of x.
KERNEL(map_window)
(const T *x, T *y, i64 planes, int together, int splits, int rows, int walk, int result_at, int in_height, int in_width,
 int height, int width, int top, int left) {
    const Tile tile(planes, together, splits, rows, height);
    const auto inside = [&](int h) { return h < 0 ? 0 : h < in_height ? h : in_height; };
    const int from = tile.whole ? 0 : inside(tile.from + top), to = tile.whole ? in_height : inside(tile.to + top);
    const Rows<T> source(tile, in_height, in_width, from, to, 0);
    const Rows<T> result(tile, height, width, tile.from, tile.to, result_at);
    source.load(x);
    __syncthreads();
    each_column(tile, width, tile.from, tile.to, walk, [&](int plane, int column, int begin, int end) {
        const int from_w = column + left;
        const bool across = from_w >= 0 && from_w < in_width;
#pragma unroll 4
        for (int h = begin; h < end; h++) {
            const int from_h = h + top;
            if (across && from_h >= 0 && from_h < in_height)
                result.row(plane, h)[column] = source.row(plane, from_h)[from_w];
            else
                narrow(0.0f, result.row(plane, h)[column]);
        }
    });
    __syncthreads();
    result.store(y);
}
