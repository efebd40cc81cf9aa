/* A grouped GEMM captured in a CUDA graph: one capture serves every split of the rows, because the offsets
 * lie in device memory. Replays must give the bits of direct runs. Needs a GPU, and the CUDA runtime for the
 * graph itself.
 *
 *   graph_capture [cuda | cuda:N]
 */
#include <cuda_runtime_api.h>

#include "numbers.h"

enum { K = 512, N = 256, EXPERTS = 4, ROWS = 40, BYTES = ROWS * N * 2 };

static void cuda_must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  exit(1);
}

static void* pack_all(fourfold_context* context, const matrix* matrices) {
  fourfold_pack_options options = FOURFOLD_INIT(fourfold_pack_options);
  options.format = FOURFOLD_NVFP4;
  options.activations = FOURFOLD_W4A16;
  options.row_order = FOURFOLD_PLAIN;
  options.rows = N;
  options.columns = K;
  size_t bytes = 0;
  must(fourfold_packed_bytes(&options, &bytes), "packed bytes");
  uint8_t* records = room(EXPERTS * bytes);
  for (int e = 0; e < EXPERTS; ++e) {
    options.codes = matrices[e].codes;
    options.scales = matrices[e].scales;
    must(fourfold_pack_host(&options, records + e * bytes, bytes), "pack");
  }
  void* memory = upload(context, records, EXPERTS * bytes);
  free(records);
  return memory;
}

/* Bits of both ways for one split of the rows; the output is poisoned before each. */
static int same_bits(fourfold_context* context, fourfold_gemm* gemm, const fourfold_gemm_call* call,
                     cudaGraphExec_t graph, cudaStream_t stream, const int32_t* offsets) {
  static uint8_t poison[BYTES], direct[BYTES], replayed[BYTES];
  memset(poison, 0x5A, BYTES);
  must(fourfold_copy_to_device(context, (void*)call->offsets, offsets, (EXPERTS + 1) * sizeof *offsets),
       "copy");
  must(fourfold_copy_to_device(context, call->output, poison, BYTES), "copy");
  must(fourfold_gemm_run(gemm, call), "run");
  must(fourfold_copy_from_device(context, direct, call->output, BYTES), "copy");
  must(fourfold_copy_to_device(context, call->output, poison, BYTES), "copy");
  cuda_must(cudaGraphLaunch(graph, stream), "launch the graph");
  must(fourfold_copy_from_device(context, replayed, call->output, BYTES), "copy");
  return memcmp(direct, replayed, BYTES) == 0 && memcmp(direct, poison, BYTES) != 0;
}

static int check_role(fourfold_context* context, cudaStream_t stream, const void* records, const void* input,
                      fourfold_role role) {
  fourfold_gemm_options options = FOURFOLD_INIT(fourfold_gemm_options);
  options.columns = K;
  options.out_columns = N;
  options.experts = EXPERTS;
  options.rows = ROWS;
  options.format = FOURFOLD_NVFP4;
  options.activations = FOURFOLD_W4A16;
  options.role = role;
  options.result = FOURFOLD_BF16;
  fourfold_gemm* gemm = NULL;
  must(fourfold_gemm_prepare(context, &options, &gemm), "prepare");
  static const int32_t splits[3][EXPERTS + 1] = {{0, 10, 20, 30, 40}, {0, 0, 40, 40, 40}, {0, 1, 3, 6, 39}};
  fourfold_gemm_call call = FOURFOLD_INIT(fourfold_gemm_call);
  void *workspace = NULL, *output = NULL;
  must(fourfold_gemm_workspace_bytes(gemm, &call.workspace_bytes), "workspace");
  must(fourfold_allocate(context, call.workspace_bytes, &workspace), "allocate");
  must(fourfold_allocate(context, BYTES, &output), "allocate");
  call.rows = ROWS;
  call.weights = records;
  call.offsets = upload(context, splits[0], sizeof splits[0]);
  call.input = input;
  call.output = output;
  call.workspace = workspace;

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cuda_must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin the capture");
  must(fourfold_gemm_run(gemm, &call), "run under capture");
  cuda_must(cudaStreamEndCapture(stream, &graph), "end the capture");
  cuda_must(cudaGraphInstantiate(&executable, graph, 0), "instantiate the graph");
  int same = 1;
  for (int i = 0; i < 3; ++i) same &= same_bits(context, gemm, &call, executable, stream, splits[i]);
  printf("%s, %s: %s\n", role == FOURFOLD_DECODE ? "decode" : "prefill", fourfold_gemm_row(gemm),
         same ? "one graph, three splits, same bits" : "DIFFERENT");
  cuda_must(cudaGraphExecDestroy(executable), "destroy the graph");
  cuda_must(cudaGraphDestroy(graph), "destroy the graph");
  fourfold_gemm_release(gemm);
  return same;
}

int main(int argc, char** argv) {
  fourfold_context_options options = FOURFOLD_INIT(fourfold_context_options);
  fourfold_context* context = NULL;
  cudaStream_t stream;
  options.device = argc > 1 ? argv[1] : "cuda";
  must(fourfold_context_open(&options, &context), options.device);
  cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  must(fourfold_context_set_stream(context, stream), "set the stream");

  matrix matrices[EXPERTS];
  static uint16_t input[ROWS * K];
  for (int e = 0; e < EXPERTS; ++e) matrices[e] = random_matrix(N, K);
  for (int i = 0; i < ROWS * K; ++i) input[i] = bf16_bits(random_between(-1.0f, 1.0f));
  const void* records = pack_all(context, matrices);
  const void* tokens = upload(context, input, sizeof input);
  const int same = check_role(context, stream, records, tokens, FOURFOLD_DECODE) &
                   check_role(context, stream, records, tokens, FOURFOLD_PREFILL);
  fourfold_context_close(context);
  cuda_must(cudaStreamDestroy(stream), "destroy the stream");
  for (int e = 0; e < EXPERTS; ++e) free_matrix(&matrices[e]);
  printf(same ? "ok\n" : "failed\n");
  return same ? 0 : 1;
}
