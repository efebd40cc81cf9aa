/* A plain grouped GEMM through libfourfold_kernels: rows sorted by expert, each times its expert's NVFP4
 * matrix. Which rows are whose is written in device memory only, as a router on the device would leave it.
 * The weights are packed on the device too.
 *
 *   grouped_gemm [cuda | cuda:N | sim:sm120 | sim:sm90]
 */
#include "numbers.h"

enum { K = 192, N = 128, EXPERTS = 3, ROWS = 13 };

/* Expert 1 gets nothing; the last row belongs to nobody and is left alone. */
static const int32_t offsets[EXPERTS + 1] = {0, 5, 5, ROWS - 1};

static void* pack_all(fourfold_context* context, const matrix* matrices) {
  fourfold_pack_options options = FOURFOLD_INIT(fourfold_pack_options);
  options.format = FOURFOLD_NVFP4;
  options.activations = FOURFOLD_W4A16;
  options.row_order = FOURFOLD_PLAIN;
  options.rows = N;
  options.columns = K;
  size_t bytes = 0;
  void* records = NULL;
  must(fourfold_packed_bytes(&options, &bytes), "packed bytes");
  must(fourfold_allocate(context, EXPERTS * bytes, &records), "allocate");
  for (int e = 0; e < EXPERTS; ++e) {
    options.codes = upload(context, matrices[e].codes, N * K / 2);
    options.scales = upload(context, matrices[e].scales, N * K / 16);
    must(fourfold_pack_device(context, &options, (uint8_t*)records + e * bytes, bytes), "pack");
  }
  return records;
}

static double compare(const matrix* matrices, const uint16_t* input, const void* output,
                      fourfold_result result) {
  double worst = 0.0;
  for (int e = 0; e < EXPERTS; ++e)
    for (int r = offsets[e]; r < offsets[e + 1]; ++r) {
      estimate x[K];
      for (int k = 0; k < K; ++k) x[k] = (estimate){bf16_value(input[r * K + k]), 0.0};
      for (int n = 0; n < N; ++n) {
        estimate expected = dot(&matrices[e], n, x);
        const size_t at = (size_t)r * N + n;
        const double actual =
            result == FOURFOLD_F32 ? ((const float*)output)[at] : bf16_value(((const uint16_t*)output)[at]);
        if (result == FOURFOLD_BF16) expected.bound += bf16_rounding(expected.value, expected.bound);
        const double error = fabs(actual - expected.value),
                     share = error <= 1e300 ? error / expected.bound : INFINITY;
        if (share > worst) worst = share;
      }
    }
  return worst;
}

static double run(fourfold_context* context, const matrix* matrices, const void* records, const float* scales,
                  const uint16_t* input, fourfold_role role, fourfold_result result) {
  fourfold_gemm_options options = FOURFOLD_INIT(fourfold_gemm_options);
  options.columns = K;
  options.out_columns = N;
  options.experts = EXPERTS;
  options.rows = ROWS;
  options.format = FOURFOLD_NVFP4;
  options.activations = FOURFOLD_W4A16;
  options.role = role;
  options.result = result;
  fourfold_gemm* gemm = NULL;
  must(fourfold_gemm_prepare(context, &options, &gemm), "prepare");

  const size_t out_bytes = (size_t)ROWS * N * (result == FOURFOLD_F32 ? 4 : 2);
  void *workspace = NULL, *untouched = room(out_bytes), *output = room(out_bytes);
  memset(untouched, 0x5A, out_bytes);
  fourfold_gemm_call call = FOURFOLD_INIT(fourfold_gemm_call);
  must(fourfold_gemm_workspace_bytes(gemm, &call.workspace_bytes), "workspace");
  must(fourfold_allocate(context, call.workspace_bytes, &workspace), "allocate");
  call.rows = ROWS;
  call.weights = records;
  call.scale = scales;
  call.offsets = upload(context, offsets, sizeof offsets);
  call.input = upload(context, input, (size_t)ROWS * K * 2);
  call.output = upload(context, untouched, out_bytes);
  call.workspace = workspace;
  must(fourfold_gemm_run(gemm, &call), "run");
  must(fourfold_copy_from_device(context, output, call.output, out_bytes), "copy from the device");

  double worst = compare(matrices, input, output, result);
  const size_t last = out_bytes / ROWS * (ROWS - 1);
  if (memcmp((uint8_t*)output + last, (uint8_t*)untouched + last, out_bytes - last) != 0) worst = INFINITY;
  printf("%s, %s result, %s\n  %s: largest error is %.3f of its bound\n",
         role == FOURFOLD_DECODE ? "decode" : "prefill", result == FOURFOLD_F32 ? "f32" : "bf16",
         fourfold_gemm_row(gemm), worst <= 1.0 ? "ok" : "WRONG", worst);
  fourfold_gemm_release(gemm);
  free(untouched);
  free(output);
  return worst;
}

int main(int argc, char** argv) {
  fourfold_context* context = open_device(argc, argv);
  matrix matrices[EXPERTS];
  float scales[EXPERTS];
  uint16_t input[ROWS * K];
  for (int e = 0; e < EXPERTS; ++e) {
    matrices[e] = random_matrix(N, K);
    scales[e] = matrices[e].global_scale;
  }
  for (int i = 0; i < ROWS * K; ++i) input[i] = bf16_bits(random_between(-1.0f, 1.0f));
  const void* records = pack_all(context, matrices);
  const float* device_scales = upload(context, scales, sizeof scales);

  double worst = run(context, matrices, records, device_scales, input, FOURFOLD_DECODE, FOURFOLD_BF16);
  worst = fmax(worst, run(context, matrices, records, device_scales, input, FOURFOLD_DECODE, FOURFOLD_F32));
  worst = fmax(worst, run(context, matrices, records, device_scales, input, FOURFOLD_PREFILL, FOURFOLD_BF16));
  fourfold_context_close(context);
  for (int e = 0; e < EXPERTS; ++e) free_matrix(&matrices[e]);
  printf(worst <= 1.0 ? "ok\n" : "failed\n");
  return worst <= 1.0 ? 0 : 1;
}
