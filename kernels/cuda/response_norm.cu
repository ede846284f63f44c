// Local response normalization across channels: y = x d^-beta, d = 1 + alpha / size * (sum of x^2 over the window).
// The window of channel c is c - size / 2 to c + (size - 1) / 2.
//
// Tensors are [outer, channels, inner]: inner is the map's area in NCHW, 1 where channels come last. A thread walks
// over `walk` neighbouring channels. Windows of five channels, which networks mostly use, stay in registers as it
// walks, or are the ends of the neighbouring units where channels come last.

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

const int BEFORE = 2, AFTER = 2, KEPT = BEFORE + AFTER;

template <int N> DEVICE void load_or_zero(Unit<T, N> &unit, const T *from, bool inside) {
    if (inside) {
        unit.load(from);
    } else {
        const float zeros[N] = {};
        unit.set(zeros);
    }
}

// Of a denominator, which is about 1.
DEVICE float power(float denominator, float exponent) {
    float logarithm, result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(denominator));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent * logarithm));
    return result;
}

// What a thread walks over: channels `begin` to `end` from `start` on, which is channel 0.
template <int N> struct Stretch {
    i64 start;
    int begin, end;

    DEVICE bool take(Walk of) {
        const i64 units = of.inner / N, chunks = (of.channels + of.walk - 1) / of.walk;
        const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
        const i64 rest = index / units;
        begin = (int)(rest % chunks) * of.walk;
        end = begin + of.walk < of.channels ? begin + of.walk : of.channels;
        start = rest / chunks * of.channels * of.inner + (index - rest * units) * N;
        return index < of.outer * chunks * units;
    }
};

template <int N> DEVICE void walk_five(const T *__restrict__ x, T *__restrict__ y, T *__restrict__ saved, Walk of,
                                       float alpha, float beta) {
    const int STEP = 4;
    Stretch<N> stretch;
    if (!stretch.take(of)) return;
    const float factor = alpha / 5;
    const auto load = [&](Unit<T, N> &unit, int c) {
        load_or_zero(unit, x + stretch.start + c * of.inner, c >= 0 && c < of.channels);
    };
    Unit<T, N> window[KEPT + STEP], next[STEP];
#pragma unroll
    for (int i = 0; i < KEPT; i++) load(window[i], stretch.begin - BEFORE + i);
#pragma unroll
    for (int i = 0; i < STEP; i++) load(next[i], stretch.begin + AFTER + i);
    for (int c = stretch.begin; c < stretch.end; c += STEP) {
        float squares[KEPT + STEP][N], pairs[KEPT + STEP][N];
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            window[KEPT + i] = next[i];
            load(next[i], c + STEP + AFTER + i);
        }
#pragma unroll
        for (int i = 0; i < KEPT + STEP; i++) {
            window[i].get(squares[i]);
#pragma unroll
            for (int lane = 0; lane < N; lane++) squares[i][lane] *= squares[i][lane];
            if (i > 0) {
#pragma unroll
                for (int lane = 0; lane < N; lane++) pairs[i - 1][lane] = squares[i - 1][lane] + squares[i][lane];
            }
            if (i < KEPT) continue;
            const int self = i - KEPT;
            float values[N], sums[N];
            window[self + BEFORE].get(values);
#pragma unroll
            for (int lane = 0; lane < N; lane++) {
                sums[lane] = 1.0f + factor * (pairs[self][lane] + pairs[self + 2][lane] + squares[i][lane]);
                values[lane] *= power(sums[lane], -beta);
            }
            if (c + self < stretch.end) {
                const i64 at = stretch.start + (c + self) * of.inner;
                Unit<T, N> unit;
                unit.set(values);
                unit.store(y + at);
                if (saved) {
                    unit.set(sums);
                    unit.store(saved + at);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < KEPT; i++) window[i] = window[STEP + i];
    }
}

template <int N>
DEVICE void walk_five_gradient(const T *__restrict__ x, const T *__restrict__ y, const T *__restrict__ dy,
                               const T *__restrict__ saved, T *__restrict__ dx, Walk of, float alpha, float beta) {
    const int STEP = 2;
    Stretch<N> stretch;
    if (!stretch.take(of)) return;
    const float factor = 2.0f * alpha * beta / 5;
    // dy y / d of the channels around, and dy d^-beta of those to come.
    float terms[KEPT + STEP][N], direct[AFTER + STEP][N];
    const auto fetch = [&](int first, int to) {
        Unit<T, N> units[3][STEP];
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            const int c = first + i;
            const i64 at = stretch.start + c * of.inner;
            const bool inside = c >= 0 && c < of.channels;
            load_or_zero(units[0][i], y + at, inside);
            load_or_zero(units[1][i], dy + at, inside);
            load_or_zero(units[2][i], saved + at, inside);
        }
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            const bool inside = first + i >= 0 && first + i < of.channels;
            float values[3][N];
#pragma unroll
            for (int j = 0; j < 3; j++) units[j][i].get(values[j]);
#pragma unroll
            for (int lane = 0; lane < N; lane++) {
                const float d = inside ? values[2][lane] : 1.0f;
                terms[to + i][lane] = __fdividef(values[1][lane] * values[0][lane], d);
                if (to + i >= BEFORE) direct[to + i - BEFORE][lane] = values[1][lane] * power(d, -beta);
            }
        }
    };
    fetch(stretch.begin - BEFORE, 0);
    fetch(stretch.begin, BEFORE);
    for (int c = stretch.begin; c < stretch.end; c += STEP) {
        Unit<T, N> self[STEP];
#pragma unroll
        for (int i = 0; i < STEP; i++)
            if (c + i < stretch.end) self[i].load(x + stretch.start + (c + i) * of.inner);
        fetch(c + AFTER, KEPT);
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            if (c + i >= stretch.end) continue;
            float values[N];
            self[i].get(values);
#pragma unroll
            for (int lane = 0; lane < N; lane++) {
                float sum = terms[i][lane];
#pragma unroll
                for (int j = 1; j <= KEPT; j++) sum += terms[i + j][lane];
                values[lane] = direct[i][lane] - factor * values[lane] * sum;
            }
            Unit<T, N> unit;
            unit.set(values);
            unit.store(dx + stretch.start + (c + i) * of.inner);
        }
#pragma unroll
        for (int lane = 0; lane < N; lane++) {
#pragma unroll
            for (int i = 0; i < KEPT; i++) terms[i][lane] = terms[i + STEP][lane];
#pragma unroll
            for (int i = 0; i < AFTER; i++) direct[i][lane] = direct[i + STEP][lane];
        }
    }
}

// A unit of neighbouring channels with the two values before it and the two behind it, zero beyond the row's ends.
struct Around {
    Unit<T, LANES> before, self, after;

    DEVICE void load(const T *from, i64 at, bool first, bool last) {
        self.load(from + at);
        load_or_zero(before, from + at - LANES, !first);
        load_or_zero(after, from + at + LANES, !last);
    }
    DEVICE void get(float (&values)[LANES + KEPT]) const {
        float lanes[LANES];
        before.get(lanes);
#pragma unroll
        for (int i = 0; i < BEFORE; i++) values[i] = lanes[LANES - BEFORE + i];
        after.get(lanes);
#pragma unroll
        for (int i = 0; i < AFTER; i++) values[BEFORE + LANES + i] = lanes[i];
        self.get(lanes);
#pragma unroll
        for (int i = 0; i < LANES; i++) values[BEFORE + i] = lanes[i];
    }
};

// Sums over the window of each lane, by pairs that two windows share.
DEVICE void windows(const float (&terms)[LANES + KEPT], float (&sums)[LANES]) {
    float pairs[LANES + 2];
#pragma unroll
    for (int i = 0; i < LANES + 2; i++) pairs[i] = terms[i] + terms[i + 1];
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) sums[lane] = pairs[lane] + pairs[lane + 2] + terms[lane + KEPT];
}

// First value of a unit, and whether it is at its row's ends.
DEVICE i64 unit_of_row(i64 unit, Divider by_units, bool &first, bool &last) {
    const i64 place = unit - by_units.divide(unit) * by_units.divisor;
    first = place == 0;
    last = place == by_units.divisor - 1;
    return unit * LANES;
}

KERNEL(local_response_norm_last_forward)
(const T *__restrict__ x, T *__restrict__ y, T *__restrict__ saved, i64 n, i64 units, int units_multiplier,
 int units_shift, float alpha, float beta) {
    const int UNITS = 2;
    const Divider by_units = {units, (u32)units_multiplier, units_shift};
    const i64 from = (i64)blockIdx.x * blockDim.x * UNITS + threadIdx.x;
    Around around[UNITS];
    i64 at[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        bool first, last;
        at[k] = unit_of_row(from + k * blockDim.x, by_units, first, last);
        if (at[k] < n) around[k].load(x, at[k], first, last);
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        if (at[k] >= n) continue;
        float values[LANES + KEPT], squares[LANES + KEPT], sums[LANES], results[LANES];
        around[k].get(values);
#pragma unroll
        for (int i = 0; i < LANES + KEPT; i++) squares[i] = values[i] * values[i];
        windows(squares, sums);
#pragma unroll
        for (int lane = 0; lane < LANES; lane++) {
            sums[lane] = 1.0f + alpha / 5 * sums[lane];
            results[lane] = values[BEFORE + lane] * power(sums[lane], -beta);
        }
        Unit<T, LANES> unit;
        unit.set(results);
        unit.store(y + at[k]);
        if (saved) {
            unit.set(sums);
            unit.store(saved + at[k]);
        }
    }
}

KERNEL(local_response_norm_last_backward)
(const T *__restrict__ x, const T *__restrict__ y, const T *__restrict__ dy, const T *__restrict__ saved,
 T *__restrict__ dx, i64 n, i64 units, int units_multiplier, int units_shift, float alpha, float beta) {
    const Divider by_units = {units, (u32)units_multiplier, units_shift};
    bool first, last;
    const i64 at = unit_of_row((i64)blockIdx.x * blockDim.x + threadIdx.x, by_units, first, last);
    if (at >= n) return;
    Around around_y, around_dy, around_d;
    Unit<T, LANES> unit;
    around_y.load(y, at, first, last);
    around_dy.load(dy, at, first, last);
    around_d.load(saved, at, first, last);
    unit.load(x + at);
    float terms[LANES + KEPT], gradients[LANES + KEPT], denominators[LANES + KEPT], sums[LANES], values[LANES];
    around_y.get(terms);
    around_dy.get(gradients);
    around_d.get(denominators);
#pragma unroll
    for (int i = 0; i < LANES + KEPT; i++) {
        const bool beyond = (first && i < BEFORE) || (last && i >= BEFORE + LANES);
        terms[i] = __fdividef(gradients[i] * terms[i], beyond ? 1.0f : denominators[i]);
    }
    windows(terms, sums);
    unit.get(values);
#pragma unroll
    for (int lane = 0; lane < LANES; lane++)
        values[lane] = gradients[BEFORE + lane] * power(denominators[BEFORE + lane], -beta) -
                       2.0f * alpha * beta / 5 * values[lane] * sums[lane];
    unit.set(values);
    unit.store(dx + at);
}

KERNEL(local_response_norm_walk_forward)
(const T *x, T *y, T *saved, i64 outer, i64 inner, int channels, int walk, int size, float alpha, float beta,
 int wide) {
    const Walk of = {outer, inner, channels, walk, size};
    if (wide)
        walk_five<4>(x, y, saved, of, alpha, beta);
    else
        walk_five<1>(x, y, saved, of, alpha, beta);
}

KERNEL(local_response_norm_walk_backward)
(const T *x, const T *y, const T *dy, const T *saved, T *dx, i64 outer, i64 inner, int channels, int walk, int size,
 float alpha, float beta, int wide) {
    const Walk of = {outer, inner, channels, walk, size};
    if (wide)
        walk_five_gradient<4>(x, y, dy, saved, dx, of, alpha, beta);
    else
        walk_five_gradient<1>(x, y, dy, saved, dx, of, alpha, beta);
}
