// Optimizer steps over fp32 master weights, with gradients in the storage format. Where `weights` is not null, the
// new weights are also written there in the storage format.

// Four values of fp32, and the four of the storage format beside them.
struct Four {
    float values[4];

    DEVICE void load(const float *from) {
        const float4 raw = *(const float4 *)from;
        values[0] = raw.x, values[1] = raw.y, values[2] = raw.z, values[3] = raw.w;
    }
    DEVICE void store(float *to) const { *(float4 *)to = make_float4(values[0], values[1], values[2], values[3]); }

    DEVICE void load(const half_bits *from) { load_pairs(from); }
    DEVICE void load(const bfloat_bits *from) { load_pairs(from); }
    DEVICE void store(half_bits *to) const { store_pairs(to); }
    DEVICE void store(bfloat_bits *to) const { store_pairs(to); }

  private:
    template <class S> DEVICE void load_pairs(const S *from) {
        const uint2 raw = *(const uint2 *)from;
        const u32 words[2] = {raw.x, raw.y};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            S stored;
            stored.bits = (u16)(words[i / 2] >> (i % 2 * 16));
            values[i] = widen(stored);
        }
    }
    template <class S> DEVICE void store_pairs(S *to) const {
        *(uint2 *)to = make_uint2(narrow_pair(values[0], values[1], S()), narrow_pair(values[2], values[3], S()));
    }
};

// `step(w, g, m, v)` changes a weight and its state. `wide`: all addresses allow units of four values.
template <int STATES, class F>
DEVICE void update(F step, float *master, const T *gradient, float *first, float *second, T *weights, i64 n, int wide) {
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 whole = wide ? n / 4 : 0;
    if (thread < whole) {
        const i64 at = thread * 4;
        Four w, g, m = {}, v = {};
        w.load(master + at);
        g.load(gradient + at);
        if (STATES > 0) m.load(first + at);
        if (STATES > 1) v.load(second + at);
#pragma unroll
        for (int i = 0; i < 4; i++) step(w.values[i], g.values[i], m.values[i], v.values[i]);
        w.store(master + at);
        if (STATES > 0) m.store(first + at);
        if (STATES > 1) v.store(second + at);
        if (weights) w.store(weights + at);
    }
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 at = whole * 4 + thread; at < n; at += threads) {
        float w = master[at], m = STATES > 0 ? first[at] : 0.0f, v = STATES > 1 ? second[at] : 0.0f;
        step(w, widen(gradient[at]), m, v);
        master[at] = w;
        if (STATES > 0) first[at] = m;
        if (STATES > 1) second[at] = v;
        if (weights) narrow(w, weights[at]);
    }
}

KERNEL(update_sgd)(float *master, const T *gradient, T *weights, i64 n, int wide, float rate) {
    update<0>([=](float &w, float g, float &, float &) { w -= rate * g; }, master, gradient, nullptr, nullptr, weights,
              n, wide);
}

KERNEL(update_momentum)
(float *master, const T *gradient, T *weights, i64 n, int wide, float rate, float *velocity, float momentum) {
    update<1>(
        [=](float &w, float g, float &m, float &) {
            m = momentum * m + g;
            w -= rate * m;
        },
        master, gradient, velocity, nullptr, weights, n, wide);
}

// `correction`s are 1 / (1 - beta^t).
KERNEL(update_adam)
(float *master, const T *gradient, T *weights, i64 n, int wide, float rate, float *first, float *second, float beta1,
 float beta2, float correction1, float correction2, float epsilon) {
    update<2>(
        [=](float &w, float g, float &m, float &v) {
            m = beta1 * m + (1.0f - beta1) * g;
            v = beta2 * v + (1.0f - beta2) * g * g;
            w -= rate * m * correction1 / (sqrtf(v * correction2) + epsilon);
        },
        master, gradient, first, second, weights, n, wide);
}
