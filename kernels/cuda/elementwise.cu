// Element-wise maps over whole tensors: every thread moves several 16-byte units, all loads before the first store.

// `f(x, y)` takes one value of each input and gives one of each output. A block covers `UNITS` units per thread; the
// last block also takes the values beyond the last whole unit.
template <int INPUTS, int OUTPUTS, int UNITS, class F>
DEVICE void map(F f, const T *const (&in)[INPUTS], T *const (&out)[OUTPUTS], i64 n) {
    const i64 whole = n / LANES;
    const i64 first = (i64)blockIdx.x * blockDim.x * UNITS + threadIdx.x;
    Unit<T, LANES> units[UNITS][INPUTS];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < whole) {
#pragma unroll
            for (int i = 0; i < INPUTS; i++) units[k][i].load(in[i] + at * LANES);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const i64 at = first + k * blockDim.x;
        if (at < whole) {
            float x[INPUTS][LANES], y[OUTPUTS][LANES];
#pragma unroll
            for (int i = 0; i < INPUTS; i++) units[k][i].get(x[i]);
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                float one_x[INPUTS], one_y[OUTPUTS];
#pragma unroll
                for (int i = 0; i < INPUTS; i++) one_x[i] = x[i][lane];
                f(one_x, one_y);
#pragma unroll
                for (int i = 0; i < OUTPUTS; i++) y[i][lane] = one_y[i];
            }
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) {
                Unit<T, LANES> unit;
                unit.set(y[i]);
                unit.store(out[i] + at * LANES);
            }
        }
    }
    const i64 rest = whole * LANES + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && rest < n) {
        float x[INPUTS], y[OUTPUTS];
#pragma unroll
        for (int i = 0; i < INPUTS; i++) x[i] = widen(in[i][rest]);
        f(x, y);
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) narrow(y[i], out[i][rest]);
    }
}

template <class F> DEVICE void map_one(F f, const T *x, T *y, i64 n) {
    const T *const in[1] = {x};
    T *const out[1] = {y};
    map<1, 1, 4>([=](const float (&a)[1], float (&b)[1]) { b[0] = f(a[0]); }, in, out, n);
}

// `f(saved, dy)`
template <class F> DEVICE void map_two(F f, const T *saved, const T *dy, T *dx, i64 n) {
    const T *const in[2] = {saved, dy};
    T *const out[1] = {dx};
    map<2, 1, 2>([=](const float (&a)[2], float (&b)[1]) { b[0] = f(a[0], a[1]); }, in, out, n);
}

DEVICE float logistic(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// The standard normal distribution and its density, as exact as the storage format asks for.
struct Normal {
    float distribution, density;
};

DEVICE Normal normal(float x, float) {
    return {0.5f + 0.5f * erff(x * 0.70710678f), 0.39894228f * expf(-0.5f * x * x)};
}

// For 16 bits, the approximation of the tail by a polynomial times the density (Abramowitz and Stegun, 7.1.26).
template <class S> DEVICE Normal normal(float x, S) {
    const float bell = __expf(-0.5f * x * x), t = __fdividef(1.0f, 1.0f + 0.23164189f * fabsf(x));
    const float tail =
        bell * t *
        (0.127414796f + t * (-0.142248368f + t * (0.7107068705f + t * (-0.7265760135f + t * 0.5307027145f))));
    return {x < 0.0f ? tail : 1.0f - tail, 0.39894228f * bell};
}

// A function and its gradient, from the result where the table of kinds says that backward reads it, else from the input.

KERNEL(relu_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return fmaxf(v, 0.0f); }, x, y, n);
}
KERNEL(relu_backward)(const T *y, const T *dy, T *dx, i64 n) {
    map_two([](float v, float g) { return v > 0.0f ? g : 0.0f; }, y, dy, dx, n);
}

KERNEL(relu6_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return fminf(fmaxf(v, 0.0f), 6.0f); }, x, y, n);
}
KERNEL(relu6_backward)(const T *y, const T *dy, T *dx, i64 n) {
    map_two([](float v, float g) { return v > 0.0f && v < 6.0f ? g : 0.0f; }, y, dy, dx, n);
}

KERNEL(sigmoid_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return logistic(v); }, x, y, n);
}
KERNEL(sigmoid_backward)(const T *y, const T *dy, T *dx, i64 n) {
    map_two([](float v, float g) { return g * v * (1.0f - v); }, y, dy, dx, n);
}

KERNEL(tanh_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return tanhf(v); }, x, y, n);
}
KERNEL(tanh_backward)(const T *y, const T *dy, T *dx, i64 n) {
    map_two([](float v, float g) { return g * (1.0f - v * v); }, y, dy, dx, n);
}

KERNEL(silu_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return v * logistic(v); }, x, y, n);
}
KERNEL(silu_backward)(const T *x, const T *dy, T *dx, i64 n) {
    map_two(
        [](float v, float g) {
            const float s = logistic(v);
            return g * s * (1.0f + v * (1.0f - s));
        },
        x, dy, dx, n);
}

KERNEL(hardswish_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f); }, x, y, n);
}
KERNEL(hardswish_backward)(const T *x, const T *dy, T *dx, i64 n) {
    map_two([](float v, float g) { return v <= -3.0f ? 0.0f : v >= 3.0f ? g : g * (v * (1.0f / 3.0f) + 0.5f); }, x, dy,
            dx, n);
}

KERNEL(gelu_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return v * normal(v, T()).distribution; }, x, y, n);
}
KERNEL(gelu_backward)(const T *x, const T *dy, T *dx, i64 n) {
    map_two(
        [](float v, float g) {
            const Normal of = normal(v, T());
            return g * (of.distribution + v * of.density);
        },
        x, dy, dx, n);
}

// (1 + tanh(u)) / 2 is the logistic function of 2 u.
DEVICE float gelu_tanh_argument(float v) { return 1.5957691216f * (v + 0.044715f * v * v * v); }
KERNEL(gelu_tanh_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return v * logistic(gelu_tanh_argument(v)); }, x, y, n);
}
KERNEL(gelu_tanh_backward)(const T *x, const T *dy, T *dx, i64 n) {
    map_two(
        [](float v, float g) {
            const float s = logistic(gelu_tanh_argument(v));
            const float slope = 1.5957691216f * (1.0f + 3.0f * 0.044715f * v * v);
            return g * s * (1.0f + v * (1.0f - s) * slope);
        },
        x, dy, dx, n);
}

DEVICE float softplus(float v, float) { return fmaxf(v, 0.0f) + log1pf(expf(-fabsf(v))); }
// For 16 bits, whose rounding hides what 1 + e^-|v| loses.
template <class S> DEVICE float softplus(float v, S) { return fmaxf(v, 0.0f) + __logf(1.0f + __expf(-fabsf(v))); }
KERNEL(softplus_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return softplus(v, T()); }, x, y, n);
}
KERNEL(softplus_backward)(const T *x, const T *dy, T *dx, i64 n) {
    map_two([](float v, float g) { return g * logistic(v); }, x, dy, dx, n);
}

KERNEL(hardsigmoid_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f); }, x, y, n);
}
KERNEL(hardsigmoid_backward)(const T *x, const T *dy, T *dx, i64 n) {
    map_two([](float v, float g) { return v > -3.0f && v < 3.0f ? g * (1.0f / 6.0f) : 0.0f; }, x, dy, dx, n);
}

// With n = e^v (e^v + 2), tanh(ln(1 + e^v)) is n / (n + 2): 1 beyond 20, where the exponential could grow without bound.
struct Mish {
    float gate, rest; // The hyperbolic tangent, and 1 less that.
};
DEVICE Mish mish(float v) {
    const float e = expf(fminf(v, 20.0f)), n = e * (e + 2.0f), over = __fdividef(1.0f, n + 2.0f);
    return {n * over, 2.0f * over};
}
KERNEL(mish_forward)(const T *x, T *y, i64 n) {
    map_one([](float v) { return v * mish(v).gate; }, x, y, n);
}
KERNEL(mish_backward)(const T *x, const T *dy, T *dx, i64 n) {
    map_two(
        [](float v, float g) {
            const Mish of = mish(v);
            return g * (of.gate + v * logistic(v) * of.rest * (1.0f + of.gate));
        },
        x, dy, dx, n);
}

template <int COUNT> DEVICE void add(const T *const (&in)[COUNT], T *y, i64 n) {
    T *const out[1] = {y};
    map<COUNT, 1, COUNT <= 3 ? 2 : 1>(
        [](const float (&a)[COUNT], float (&b)[1]) {
            b[0] = a[0];
#pragma unroll
            for (int i = 1; i < COUNT; i++) b[0] += a[i];
        },
        in, out, n);
}

KERNEL(add_2)(const T *a, const T *b, T *y, i64 n) {
    const T *const in[2] = {a, b};
    add(in, y, n);
}
KERNEL(add_3)(const T *a, const T *b, const T *c, T *y, i64 n) {
    const T *const in[3] = {a, b, c};
    add(in, y, n);
}
KERNEL(add_4)(const T *a, const T *b, const T *c, const T *d, T *y, i64 n) {
    const T *const in[4] = {a, b, c, d};
    add(in, y, n);
}
KERNEL(add_5)(const T *a, const T *b, const T *c, const T *d, const T *e, T *y, i64 n) {
    const T *const in[5] = {a, b, c, d, e};
    add(in, y, n);
}
KERNEL(add_6)(const T *a, const T *b, const T *c, const T *d, const T *e, const T *f, T *y, i64 n) {
    const T *const in[6] = {a, b, c, d, e, f};
    add(in, y, n);
}
KERNEL(add_7)(const T *a, const T *b, const T *c, const T *d, const T *e, const T *f, const T *g, T *y, i64 n) {
    const T *const in[7] = {a, b, c, d, e, f, g};
    add(in, y, n);
}
KERNEL(add_8)
(const T *a, const T *b, const T *c, const T *d, const T *e, const T *f, const T *g, const T *h, T *y, i64 n) {
    const T *const in[8] = {a, b, c, d, e, f, g, h};
    add(in, y, n);
}

KERNEL(multiply_forward)(const T *a, const T *b, T *y, i64 n) {
    map_two([](float v, float w) { return v * w; }, a, b, y, n);
}

KERNEL(multiply_backward)(const T *a, const T *b, const T *dy, T *da, T *db, i64 n) {
    const T *const in[3] = {a, b, dy};
    T *const out[2] = {da, db};
    map<3, 2, 2>(
        [](const float (&x)[3], float (&g)[2]) {
            g[0] = x[2] * x[1];
            g[1] = x[2] * x[0];
        },
        in, out, n);
}
