// What every kernel uses: storage formats, 16-byte units, windows, sums across threads. No header is included, so that the
// run-time compiler needs none.

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

#define DEVICE __device__ __forceinline__

// Values of the storage format T in 16 bytes.
#define LANES (16 / (int)sizeof(T))

#define INFINITE __int_as_float(0x7f800000)

// Storage formats of 16 bits; all arithmetic is in fp32.
struct half_bits {
    u16 bits;
};
struct bfloat_bits {
    u16 bits;
};

DEVICE float widen(float value) { return value; }

DEVICE float widen(half_bits value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}

DEVICE float widen(bfloat_bits value) { return __uint_as_float((u32)value.bits << 16); }

DEVICE void narrow(float value, float &stored) { stored = value; }

DEVICE void narrow(float value, half_bits &stored) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value)); }

DEVICE void narrow(float value, bfloat_bits &stored) {
    // To nearest, ties to even; a NaN stays one.
    u32 bits = __float_as_uint(value);
    stored.bits = value != value ? 0x7fff : (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Two stored values in one word, the first in the low half.
DEVICE u32 narrow_pair(float first, float second, half_bits) {
    half_bits a, b;
    narrow(first, a);
    narrow(second, b);
    return (u32)a.bits | ((u32)b.bits << 16);
}

DEVICE u32 narrow_pair(float first, float second, bfloat_bits) {
#if __CUDA_ARCH__ >= 800
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#else
    bfloat_bits a, b;
    narrow(first, a);
    narrow(second, b);
    return (u32)a.bits | ((u32)b.bits << 16);
#endif
}

template <int COUNT> struct Words;
template <> struct Words<4> {
    typedef uint4 type;
};
template <> struct Words<2> {
    typedef uint2 type;
};

// `N` neighbouring values that move together: 16 or 8 bytes, or a single value where sizes or alignment forbid more.
// The raw words are kept until they are needed, so that several loads are in flight before the first conversion.
template <class T, int N> struct Unit {
    static const int PER_WORD = 4 / sizeof(T), COUNT = N / PER_WORD;
    typedef typename Words<COUNT>::type Raw;
    Raw raw;

    DEVICE void load(const T *from) { raw = *(const Raw *)from; }
    DEVICE void store(T *to) const { *(Raw *)to = raw; }

    DEVICE void get(float (&values)[N]) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) get_word(((const u32 *)&raw)[i], values + i * PER_WORD, T());
    }
    DEVICE void set(const float (&values)[N]) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) ((u32 *)&raw)[i] = set_word(values + i * PER_WORD, T());
    }

  private:
    static DEVICE void get_word(u32 word, float *values, float) { values[0] = __uint_as_float(word); }
    template <class S> static DEVICE void get_word(u32 word, float *values, S stored) {
        stored.bits = (u16)(word & 0xffff);
        values[0] = widen(stored);
        stored.bits = (u16)(word >> 16);
        values[1] = widen(stored);
    }
    static DEVICE u32 set_word(const float *values, float) { return __float_as_uint(values[0]); }
    template <class S> static DEVICE u32 set_word(const float *values, S format) {
        return narrow_pair(values[0], values[1], format);
    }
};

template <class T> struct Unit<T, 1> {
    T raw;

    DEVICE void load(const T *from) { raw = *from; }
    DEVICE void store(T *to) const { *to = raw; }
    DEVICE void get(float (&values)[1]) const { values[0] = widen(raw); }
    DEVICE void set(const float (&values)[1]) { narrow(values[0], raw); }
};

// Division by a number that is known when launching: of n below 2^31 by multiplying and shifting (Granlund and
// Montgomery, 1994), with multiplier = ceil(2^shift / divisor) and shift = 31 + ceil(log2 divisor).
struct Divider {
    i64 divisor;
    u32 multiplier;
    int shift;

    DEVICE i64 divide(i64 n) const {
        if (n >> 31) return n / divisor;
        return (i64)(((u64)(u32)n * multiplier) >> shift);
    }
};

// Windows of a pooling along one direction; `kernel` 0 means adaptive: window o covers floor(o in / out) to ceil((o + 1) in / out),
// of sizes below 2^16.
struct Windows {
    int input, output, kernel, stride, padding;

    DEVICE int begin(int o) const { return kernel ? o * stride - padding : (int)((u32)o * input / output); }
    DEVICE int end(int o) const {
        return kernel ? o * stride - padding + kernel : (int)(((u32)(o + 1) * input + output - 1) / output);
    }
    // First and last window over position i, before cutting to 0 .. output - 1.
    DEVICE int first(int i) const {
        if (!kernel) return (int)((u32)i * output / input);
        const int beyond = i + padding - kernel;
        return beyond < 0 ? 0 : beyond / stride + 1;
    }
    DEVICE int last(int i) const {
        const int o = kernel ? (i + padding) / stride : (int)(((u32)(i + 1) * output - 1) / input);
        return o < output ? o : output - 1;
    }
    // Positions that a mean divides by: padding counts, what lies beyond it by rounding up does not.
    DEVICE int count(int o) const {
        const int to = end(o), limit = input + padding;
        return (to < limit ? to : limit) - begin(o);
    }
    DEVICE int clamp(int i) const { return i < 0 ? 0 : i < input ? i : input - 1; }
};

struct Sum {
    static DEVICE float neutral() { return 0.0f; }
    static DEVICE float join(float a, float b) { return a + b; }
};

struct Largest {
    static DEVICE float neutral() { return -INFINITE; }
    static DEVICE float join(float a, float b) { return fmaxf(a, b); }
};

// Joins one value of each thread along threadIdx.x; blockDim.x is a power of two, and above 32 blockDim.y is 1.
// Every thread of the block must take part.
template <class How> DEVICE float join_along_x(float value) {
    const int width = blockDim.x;
    for (int step = (width < 32 ? width : 32) / 2; step > 0; step /= 2)
        value = How::join(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (width > 32) {
        __shared__ float warps[32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
        __syncthreads();
        value = warps[0];
        for (int i = 1; i < width / 32; i++) value = How::join(value, warps[i]);
    }
    return value;
}

// The same along threadIdx.y, separately for each threadIdx.x; blockDim.y is a power of two, the block has at most
// 512 threads.
template <class How> DEVICE float join_along_y(float value) {
    __shared__ float threads[512];
    const int self = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
    threads[self] = value;
    __syncthreads();
    for (int step = blockDim.y / 2; step > 0; step /= 2) {
        if (threadIdx.y < step) threads[self] = How::join(threads[self], threads[self + step * blockDim.x]);
        __syncthreads();
    }
    return threads[threadIdx.x];
}

// A hash of 32 bits to 32 bits (Wellons, "lowbias32").
DEVICE u32 mix(u32 bits) {
    bits = (bits ^ (bits >> 16)) * 0x7feb352du;
    bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
    return bits ^ (bits >> 16);
}

// 32 random bits that depend on seed and index alone.
DEVICE u32 random_bits(u32 seed, i64 index) { return mix((u32)index ^ mix((u32)(index >> 32) + seed)); }
