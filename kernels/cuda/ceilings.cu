// What the arithmetic units can do at most.

// Eight independent chains of fused multiply-adds per thread; 16 operations per thread and iteration.
PLAIN_KERNEL(fma_burn)(float *out, int iterations, float factor, float summand) {
    float chains[8];
#pragma unroll
    for (int i = 0; i < 8; i++) chains[i] = threadIdx.x + i * 0.25f;
#pragma unroll 16
    for (int k = 0; k < iterations; k++) {
#pragma unroll
        for (int i = 0; i < 8; i++) chains[i] = fmaf(chains[i], factor, summand);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += chains[i];
    out[(i64)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
