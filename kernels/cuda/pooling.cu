// Window pooling, forward and backward. Tensors are [planes, height, width, channels] in units of N channels: NCHW is
// the case of one channel and a plane per channel of each sample. Block (x: along a row, y: rows), gridDim.y splits
// rows further.

// Windows along one direction; `kernel` 0 means adaptive: window o covers floor(o in / out) to ceil((o + 1) in / out).
struct Windows {
    int input, output, kernel, stride, padding;

    DEVICE int begin(int o) const { return kernel ? o * stride - padding : (int)((i64)o * input / output); }
    DEVICE int end(int o) const {
        return kernel ? o * stride - padding + kernel : (int)(((i64)(o + 1) * input + output - 1) / output);
    }
    // First and last window over position i, before cutting to 0 .. output - 1.
    DEVICE int first(int i) const {
        if (!kernel) return (int)((i64)i * output / input);
        const int beyond = i + padding - kernel;
        return beyond < 0 ? 0 : beyond / stride + 1;
    }
    DEVICE int last(int i) const {
        const int o = kernel ? (i + padding) / stride : (int)(((i64)(i + 1) * output - 1) / input);
        return o < output ? o : output - 1;
    }
    // Positions that a mean divides by: padding counts, what lies beyond it by rounding up does not.
    DEVICE int count(int o) const {
        const int to = end(o), limit = input + padding;
        return (to < limit ? to : limit) - begin(o);
    }
};

// K: size and S: stride of square windows known when compiling, or 0.
template <bool MAX, int N, int K, int S>
DEVICE void pool(const T *__restrict__ x, T *__restrict__ y, i64 planes, int channels, Windows down, Windows along) {
    if (K) down.kernel = along.kernel = K;
    if (S) down.stride = along.stride = S;
    const i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= planes * down.output) return;
    const i64 plane = row / down.output;
    const int out_h = (int)(row - plane * down.output);
    const i64 units = (i64)along.output * channels;
    const T *from = x + plane * down.input * along.input * channels * N;
    const int top = down.begin(out_h), bottom = down.end(out_h);
    for (i64 unit = (i64)blockIdx.y * blockDim.x + threadIdx.x; unit < units; unit += (i64)gridDim.y * blockDim.x) {
        const int out_w = channels == 1 ? (int)unit : (int)(unit / channels);
        const int channel = channels == 1 ? 0 : (int)(unit - (i64)out_w * channels);
        const int left = along.begin(out_w), right = along.end(out_w);
        float result[N];
#pragma unroll
        for (int lane = 0; lane < N; lane++) result[lane] = MAX ? -INFINITE : 0.0f;
        const auto visit = [&](int h, int w) {
            if (h >= 0 && h < down.input && w >= 0 && w < along.input) {
                Unit<T, N> value;
                float lanes[N];
                value.load(from + (((i64)h * along.input + w) * channels + channel) * N);
                value.get(lanes);
#pragma unroll
                for (int lane = 0; lane < N; lane++)
                    result[lane] = MAX ? fmaxf(result[lane], lanes[lane]) : result[lane] + lanes[lane];
            }
        };
        if (K) {
#pragma unroll
            for (int i = 0; i < K; i++) {
#pragma unroll
                for (int j = 0; j < K; j++) visit(top + i, left + j);
            }
        } else {
            for (int h = top; h < bottom; h++) {
#pragma unroll 4
                for (int w = left; w < right; w++) visit(h, w);
            }
        }
        if (!MAX) {
            const float factor = 1.0f / ((float)down.count(out_h) * (float)along.count(out_w));
#pragma unroll
            for (int lane = 0; lane < N; lane++) result[lane] *= factor;
        }
        Unit<T, N> stored;
        stored.set(result);
        stored.store(y + (row * units + unit) * N);
    }
}

// Each position of dx gathers from the windows over it. Of several equal maxima, the first in the window takes the
// gradient.
template <bool MAX, int N, int K, int S>
DEVICE void pool_gradient(const T *__restrict__ x, const T *__restrict__ y, const T *__restrict__ dy,
                          T *__restrict__ dx, i64 planes, int channels, Windows down, Windows along) {
    if (K) down.kernel = along.kernel = K;
    if (S) down.stride = along.stride = S;
    const i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= planes * down.input) return;
    const i64 plane = row / down.input;
    const int h = (int)(row - plane * down.input);
    const i64 units = (i64)along.input * channels;
    const T *map = x + plane * down.input * units * N;
    const i64 outputs = plane * down.output * along.output * channels;
    const int top = down.first(h), bottom = down.last(h);
    for (i64 unit = (i64)blockIdx.y * blockDim.x + threadIdx.x; unit < units; unit += (i64)gridDim.y * blockDim.x) {
        const int w = channels == 1 ? (int)unit : (int)(unit / channels);
        const int channel = channels == 1 ? 0 : (int)(unit - (i64)w * channels);
        const int left = along.first(w), right = along.last(w);
        float result[N] = {}, self[N] = {};
        if (MAX) {
            Unit<T, N> value;
            value.load(map + (h * units + unit) * N);
            value.get(self);
        }
        const auto visit = [&](int out_h, int out_w) {
            const i64 at = (outputs + ((i64)out_h * along.output + out_w) * channels + channel) * N;
            Unit<T, N> value;
            float gradient[N];
            value.load(dy + at);
            value.get(gradient);
            if (MAX) {
                float largest[N];
                bool mine[N], any = false;
                value.load(y + at);
                value.get(largest);
#pragma unroll
                for (int lane = 0; lane < N; lane++) {
                    mine[lane] = self[lane] == largest[lane];
                    any = any || mine[lane];
                }
                // Whether an earlier position of the window holds the same value.
                const int from_h = down.begin(out_h), from_w = along.begin(out_w), to_w = along.end(out_w);
                for (int i = from_h < 0 ? 0 : from_h; any && i <= h; i++) {
                    const int end = i == h ? w : to_w < along.input ? to_w : along.input;
                    for (int j = from_w < 0 ? 0 : from_w; j < end; j++) {
                        float other[N];
                        value.load(map + (((i64)i * along.input + j) * channels + channel) * N);
                        value.get(other);
#pragma unroll
                        for (int lane = 0; lane < N; lane++) mine[lane] = mine[lane] && other[lane] != largest[lane];
                    }
                }
#pragma unroll
                for (int lane = 0; lane < N; lane++) result[lane] += mine[lane] ? gradient[lane] : 0.0f;
            } else {
                const float factor = 1.0f / ((float)down.count(out_h) * (float)along.count(out_w));
#pragma unroll
                for (int lane = 0; lane < N; lane++) result[lane] += gradient[lane] * factor;
            }
        };
        if (K) {
            const int MOST = S ? (K + S - 1) / S : 1;
#pragma unroll
            for (int i = 0; i < MOST; i++) {
#pragma unroll
                for (int j = 0; j < MOST; j++) {
                    if (top + i <= bottom && left + j <= right) visit(top + i, left + j);
                }
            }
        } else {
            for (int i = top; i <= bottom; i++) {
                for (int j = left; j <= right; j++) visit(i, j);
            }
        }
        Unit<T, N> stored;
        stored.set(result);
        stored.store(dx + (row * units + unit) * N);
    }
}

// Windows of 2x2 with stride 2 and of 3x3 with stride 2 are what networks mostly use.
#define BY_WINDOW(function, MAX, arguments)                                                                            \
    const Windows down = {height, out_height, kernel_h, stride_h, padding_h};                                          \
    const Windows along = {width, out_width, kernel_w, stride_w, padding_w};                                           \
    const bool square = kernel_h == kernel_w && stride_h == 2 && stride_w == 2;                                        \
    if (square && kernel_h == 2) {                                                                                     \
        if (wide)                                                                                                      \
            function<MAX, LANES, 2, 2> arguments;                                                                      \
        else                                                                                                           \
            function<MAX, 1, 2, 2> arguments;                                                                          \
    } else if (square && kernel_h == 3) {                                                                              \
        if (wide)                                                                                                      \
            function<MAX, LANES, 3, 2> arguments;                                                                      \
        else                                                                                                           \
            function<MAX, 1, 3, 2> arguments;                                                                          \
    } else {                                                                                                           \
        if (wide)                                                                                                      \
            function<MAX, LANES, 0, 0> arguments;                                                                      \
        else                                                                                                           \
            function<MAX, 1, 0, 0> arguments;                                                                          \
    }

KERNEL(max_pool_forward)
(const T *x, T *y, i64 planes, int channels, int height, int width, int out_height, int out_width, int kernel_h,
 int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w, int wide) {
    BY_WINDOW(pool, true, (x, y, planes, channels, down, along))
}

KERNEL(avg_pool_forward)
(const T *x, T *y, i64 planes, int channels, int height, int width, int out_height, int out_width, int kernel_h,
 int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w, int wide) {
    BY_WINDOW(pool, false, (x, y, planes, channels, down, along))
}

KERNEL(max_pool_backward)
(const T *x, const T *y, const T *dy, T *dx, i64 planes, int channels, int height, int width, int out_height,
 int out_width, int kernel_h, int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w, int wide) {
    BY_WINDOW(pool_gradient, true, (x, y, dy, dx, planes, channels, down, along))
}

KERNEL(avg_pool_backward)
(const T *x, const T *y, const T *dy, T *dx, i64 planes, int channels, int height, int width, int out_height,
 int out_width, int kernel_h, int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w, int wide) {
    BY_WINDOW(pool_gradient, false, (x, y, dy, dx, planes, channels, down, along))
}
