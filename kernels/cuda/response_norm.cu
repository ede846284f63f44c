// Local response normalization across channels: y = x d^-beta, d = 1 + alpha / size * (sum of x^2 over the window).
// The window of channel c is c - size / 2 to c + (size - 1) / 2.
//
// Tensors are [outer, channels, inner]: inner is the map's area in NCHW, 1 where channels come last. A thread walks
// over `walk` neighbouring channels, so that the window's values are found in the nearest cache.

struct Walk {
    i64 outer, inner;
    int channels, walk, size;
};

template <int N, class F> DEVICE void walk_channels(Walk of, F f) {
    const i64 units = of.inner / N, chunks = (of.channels + of.walk - 1) / of.walk;
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= of.outer * chunks * units) return;
    const i64 unit = index % units, rest = index / units;
    const int begin = (int)(rest % chunks) * of.walk;
    const int end = begin + of.walk < of.channels ? begin + of.walk : of.channels;
    const i64 start = rest / chunks * of.channels * of.inner + unit * N;
    for (int c = begin; c < end; c++) f(start, c);
}

template <int N> DEVICE void response_norm(const T *__restrict__ x, T *__restrict__ y, T *__restrict__ saved, Walk of,
                                           float alpha, float beta) {
    const float factor = alpha / of.size;
    walk_channels<N>(of, [&](i64 start, int channel) {
        float sums[N] = {}, self[N] = {};
#pragma unroll 5
        for (int i = 0; i < of.size; i++) {
            const int c = channel - of.size / 2 + i;
            if (c >= 0 && c < of.channels) {
                Unit<T, N> unit;
                float lanes[N];
                unit.load(x + start + c * of.inner);
                unit.get(lanes);
#pragma unroll
                for (int lane = 0; lane < N; lane++) {
                    sums[lane] += lanes[lane] * lanes[lane];
                    if (c == channel) self[lane] = lanes[lane];
                }
            }
        }
        Unit<T, N> unit;
#pragma unroll
        for (int lane = 0; lane < N; lane++) {
            sums[lane] = 1.0f + factor * sums[lane];
            self[lane] *= exp2f(-beta * log2f(sums[lane]));
        }
        unit.set(self);
        unit.store(y + start + channel * of.inner);
        if (saved) {
            unit.set(sums);
            unit.store(saved + start + channel * of.inner);
        }
    });
}

// dx = dy d^-beta - 2 alpha beta / size x (sum of dy y / d over the channels whose window holds this one)
template <int N>
DEVICE void response_norm_gradient(const T *__restrict__ x, const T *__restrict__ y, const T *__restrict__ dy,
                                   const T *__restrict__ saved, T *__restrict__ dx, Walk of, float alpha, float beta) {
    const float factor = 2.0f * alpha * beta / of.size;
    walk_channels<N>(of, [&](i64 start, int channel) {
        float sums[N] = {}, direct[N] = {}, self[N];
#pragma unroll 5
        for (int i = 0; i < of.size; i++) {
            const int c = channel - (of.size - 1) / 2 + i;
            if (c >= 0 && c < of.channels) {
                Unit<T, N> unit_y, unit_dy, unit_d;
                float lanes_y[N], lanes_dy[N], lanes_d[N];
                unit_y.load(y + start + c * of.inner);
                unit_dy.load(dy + start + c * of.inner);
                unit_d.load(saved + start + c * of.inner);
                unit_y.get(lanes_y);
                unit_dy.get(lanes_dy);
                unit_d.get(lanes_d);
#pragma unroll
                for (int lane = 0; lane < N; lane++) {
                    sums[lane] += __fdividef(lanes_dy[lane] * lanes_y[lane], lanes_d[lane]);
                    if (c == channel) direct[lane] = lanes_dy[lane] * exp2f(-beta * log2f(lanes_d[lane]));
                }
            }
        }
        Unit<T, N> unit;
        unit.load(x + start + channel * of.inner);
        unit.get(self);
#pragma unroll
        for (int lane = 0; lane < N; lane++) direct[lane] -= factor * self[lane] * sums[lane];
        unit.set(direct);
        unit.store(dx + start + channel * of.inner);
    });
}

KERNEL(local_response_norm_forward)
(const T *x, T *y, T *saved, i64 outer, i64 inner, int channels, int walk, int size, float alpha, float beta,
 int wide) {
    const Walk of = {outer, inner, channels, walk, size};
    if (wide)
        response_norm<LANES>(x, y, saved, of, alpha, beta);
    else
        response_norm<1>(x, y, saved, of, alpha, beta);
}

KERNEL(local_response_norm_backward)
(const T *x, const T *y, const T *dy, const T *saved, T *dx, i64 outer, i64 inner, int channels, int walk, int size,
 float alpha, float beta, int wide) {
    const Walk of = {outer, inner, channels, walk, size};
    if (wide)
        response_norm_gradient<LANES>(x, y, dy, saved, dx, of, alpha, beta);
    else
        response_norm_gradient<1>(x, y, dy, saved, dx, of, alpha, beta);
}
