// The instruction mix of an attention kernel's softmax loop: a thread owns a row of 64 scores in registers.
extern "C" __global__ void __launch_bounds__(256) rows(float* o, const float* x, int tiles, float scale) {
  float m = -1e30f, l = 0, acc = 0;
  const int t = threadIdx.x;
  for (int j = 0; j < tiles; j++) {
    float s[64];
#pragma unroll
    for (int i = 0; i < 64; i++) s[i] = __ldg(x + ((t & 63) * 64 + i * 7 + j) % 16384 / 1);
    float mm = m;
#pragma unroll
    for (int i = 0; i < 64; i++) mm = fmaxf(mm, s[i]);
    float c;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(c) : "f"((m - mm) * scale));
    m = mm;
    l *= c;
    acc *= c;
#pragma unroll
    for (int i = 0; i < 64; i++) {
      float e;
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fmaf(s[i], scale, -m * scale)));
      l += e;
      s[i] = e;
    }
#pragma unroll
    for (int i = 0; i < 64; i += 2) {
      unsigned p;
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(s[i + 1]), "f"(s[i]));
      acc += __uint_as_float(p << 16) * __uint_as_float(p & 0xFFFF0000u);
    }
  }
  o[t] = acc / l;
}
