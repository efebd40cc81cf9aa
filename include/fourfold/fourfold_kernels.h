/* libfourfold_kernels: NVFP4 and MXFP4 mixture-of-experts kernels for engines that have everything else.
 *
 * The boundary. The library owns three kinds of handle and nothing else: a context (one device and one
 * stream, or the built-in simulator), and on it prepared layers and prepared grouped GEMMs (which kernels
 * run, and where their tables lie in the workspace). Weights, tokens, results and workspace are the caller's
 * device memory; the library reads and writes them through the pointers of a call, and keeps no pointer for a
 * later one. A prepared handle belongs to its context and is released before it; a context outlives its
 * handles.
 *
 * The life of a layer:
 *   fourfold_context_open     a device
 *   fourfold_pack_host/device the checkpoint's matrices -> tile records, once
 *   fourfold_layer_prepare    shape, format, role, most tokens -> kernels and workspace size, or a refusal
 *   fourfold_layer_run        any number of times, any number of tokens up to the most
 *
 * Running. fourfold_layer_run and fourfold_gemm_run put kernels on the context's stream and return: they
 * allocate no device memory, never wait, and may be captured in a CUDA graph (the grid is fixed, what varies
 * lies in device memory). On the simulator a run is complete when the call returns.
 *
 * Same answer. The role (prefill or decode) decides the arithmetic; the number of rows never does. A row's
 * result has the same bits alone or in any batch.
 *
 * Errors. Every function that can fail returns a fourfold_status. The sentence that goes with the last
 * failure on the calling thread is fourfold_kernels_last_error(); it names the numbers. A refused call has
 * launched nothing and written nothing; only a fault while kernels run (FOURFOLD_DEVICE_LOST on a GPU, a
 * named fault on the simulator) leaves the output undefined. The library never aborts on bad input and never
 * falls back to something slower in silence.
 *
 * Threads. Different contexts may be used by different threads at once. One context, with everything prepared
 * on it, is used by one thread at a time; the caller locks. Functions without a context may be called from
 * any thread at any time. Each function says which of the two it is.
 *
 * Versions. Option structs begin with struct_size, set by the caller to sizeof the struct (FOURFOLD_INIT
 * does). A library accepts the structs of older headers, and of newer ones as long as the members it does not
 * know are zero. The soname changes when a promise of this header does.
 *
 * C11, and C++. Device pointers are plain pointers. All matrices are row-major. Members and arguments that
 * hold one of the enums below are int32_t, so that a wrong number is an error and not undefined.
 */
#ifndef FOURFOLD_KERNELS_H
#define FOURFOLD_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FOURFOLD_API __attribute__((visibility("default")))
#else
#define FOURFOLD_API
#endif

/* Major * 10000 + minor * 100 + patch. */
#define FOURFOLD_KERNELS_VERSION 100

/* fourfold_layer_options options = FOURFOLD_INIT(fourfold_layer_options); everything else zero. */
#if defined(__cplusplus)
#define FOURFOLD_INIT(type) fourfold_init<type>()
template <class Struct>
inline Struct fourfold_init() {
  Struct value{};
  value.struct_size = sizeof(Struct);
  return value;
}
extern "C" {
#else
#define FOURFOLD_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

/* ---- status ---- */

typedef enum fourfold_status {
  FOURFOLD_OK = 0,
  FOURFOLD_INVALID_REQUEST = 1, /* a null pointer, a size, a shape: the caller's numbers */
  FOURFOLD_BAD_CHECKPOINT = 2,  /* a scale that is NaN, negative or not representable */
  FOURFOLD_UNSUPPORTED_MODEL = 3,
  FOURFOLD_UNSUPPORTED_DEVICE = 4, /* no such device, or one without kernels */
  FOURFOLD_UNSUPPORTED_OP = 5,     /* no kernel for this combination; the message says why */
  FOURFOLD_OUT_OF_MEMORY = 6,
  FOURFOLD_OVER_CAPACITY = 7,
  FOURFOLD_CANCELLED = 8,
  FOURFOLD_DEVICE_LOST = 9, /* the CUDA context is gone; nothing on it works any more */
  FOURFOLD_IO = 10,
  FOURFOLD_INTERNAL = 11 /* our mistake; please report the message */
} fourfold_status;

/* The version of the library that was loaded; compare with FOURFOLD_KERNELS_VERSION. Any thread. */
FOURFOLD_API uint32_t fourfold_kernels_version(void);

/* "invalid_request" and so on; "unknown" for other numbers. Any thread. */
FOURFOLD_API const char* fourfold_status_name(fourfold_status status);

/* What went wrong in the last failed call of this thread; empty if none has failed. The text is the library's
 * and stays until the thread's next failure. Any thread. */
FOURFOLD_API const char* fourfold_kernels_last_error(void);

/* ---- context: a device and a stream ---- */

typedef struct fourfold_context fourfold_context;

typedef struct fourfold_context_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char* device;              /* "cuda", "cuda:1", "sim:sm120", "sim:sm121" or "sim:sm90" */
  void* stream;                    /* CUDA: the caller's cudaStream_t; null is the default stream */
  uint64_t simulator_memory_bytes; /* simulator: memory of the device; 0: 1 GiB of addresses */
} fourfold_context_options;

typedef struct fourfold_context_info {
  uint32_t struct_size;
  uint32_t simulated;            /* 1 on the simulator */
  uint32_t sm_count;             /* SMs of the GPU; blocks of a persistent grid on the simulator */
  uint32_t smem_bytes_per_block; /* shared memory a block may have on this architecture */
  char arch[16];                 /* "sm90" */
  char description[128];         /* "NVIDIA H200, sm90" */
} fourfold_context_info;

/* Opens a device, compares it with the facts its kernels were planned for and every kernel with its plan. The
 * simulator executes the same kernel source on the CPU, with its checks for races and bounds on: for examples
 * and tests, slowly. Any thread; leaves the thread's current CUDA device as it was. */
FOURFOLD_API fourfold_status fourfold_context_open(const fourfold_context_options* options,
                                                   fourfold_context** context);

/* Ends a context; null does nothing. Layers and GEMMs prepared on it must have been released. Memory that
 * fourfold_allocate gave out goes back with it. The caller has waited for its runs. One thread at a time. */
FOURFOLD_API void fourfold_context_close(fourfold_context* context);

/* Later runs, packs and copies go to this stream (cudaStream_t, of the same device). On the simulator only
 * null is accepted. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_context_set_stream(fourfold_context* context, void* stream);

/* Waits for everything on the context's stream. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_context_synchronize(fourfold_context* context);

/* One thread at a time. */
FOURFOLD_API fourfold_status fourfold_context_describe(const fourfold_context* context,
                                                       fourfold_context_info* info);

/* Device memory, for those who have no allocator of their own; on the simulator it is the only memory kernels
 * can reach. Aligned to 256 bytes. The copies wait for the stream. On the simulator bytes that nobody wrote
 * cannot be read. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_allocate(fourfold_context* context, size_t bytes, void** memory);
FOURFOLD_API fourfold_status fourfold_free(fourfold_context* context, void* memory);
FOURFOLD_API fourfold_status fourfold_copy_to_device(fourfold_context* context, void* to, const void* from,
                                                     size_t bytes);
FOURFOLD_API fourfold_status fourfold_copy_from_device(fourfold_context* context, void* to, const void* from,
                                                       size_t bytes);

/* ---- words ---- */

/* Number format of the weights. Zero is no format: it has to be said. */
typedef enum fourfold_format {
  FOURFOLD_NVFP4 = 1, /* E2M1 codes, an E4M3 scale per 16 columns, an f32 scale per matrix */
  FOURFOLD_MXFP4 = 2  /* E2M1 codes, a UE8M0 scale per 32 columns */
} fourfold_format;

/* What the tensor cores multiply the weights with. Packed weights are of one kind or the other. */
typedef enum fourfold_activations {
  FOURFOLD_W4A16 = 1, /* bf16 tokens */
  FOURFOLD_W4A4 = 2   /* tokens quantised to NVFP4 on the way, with input scales; native on SM120, where the
                       * first preparation asks the chip: FOURFOLD_UNSUPPORTED_OP beyond the derived bound,
                       * a notice of the layer's choice within it, nothing where every bit is as modelled */
} fourfold_activations;

/* Decides the arithmetic: generated rows (a sum in segments of 512 columns) or prompt rows. */
typedef enum fourfold_role { FOURFOLD_DECODE = 1, FOURFOLD_PREFILL = 2 } fourfold_role;

/* Row order of a packed matrix. */
typedef enum fourfold_row_order {
  FOURFOLD_PLAIN = 1,  /* down projections, and what the grouped GEMM takes */
  FOURFOLD_GATE_UP = 2 /* gate and up of an expert interleaved, for the fused SwiGLU of the layer */
} fourfold_row_order;

/* Who wrote the checkpoint: the two conventions store global scales as each other's inverse. */
typedef enum fourfold_convention {
  FOURFOLD_MODELOPT = 1,          /* weight_scale_2, input_scale: amax / (6 * 448), multiplies */
  FOURFOLD_COMPRESSED_TENSORS = 2 /* weight_global_scale, input_global_scale: 6 * 448 / amax, divides */
} fourfold_convention;

/* ---- plan ---- */

typedef struct fourfold_layer_options {
  uint32_t struct_size;
  int32_t hidden;          /* H, a multiple of 64 */
  int32_t intermediate;    /* I, a multiple of 64 */
  int32_t experts;         /* E, 1 to 1,024 */
  int32_t top_k;           /* 1 to 32, at most E */
  int32_t tokens;          /* the most a run may bring; decides the kernels, not the answer */
  int32_t format;          /* fourfold_format */
  int32_t activations;     /* fourfold_activations */
  int32_t role;            /* fourfold_role */
  uint32_t allow_emulated; /* 1: W4A4 also where its instruction is emulated (Hopper): for proofs */
} fourfold_layer_options;

typedef struct fourfold_choice {
  uint32_t struct_size;
  uint32_t accepted;    /* 1: the rows below; 0: the refusal below */
  uint32_t emulated;    /* 1: the FP4 instruction is emulated on this architecture */
  int32_t tile_tokens;  /* tokens of a tile */
  char gate_up_row[64]; /* "moe_stream 32x8x512 w4a16-mma nvfp4" */
  char down_row[64];
  char refusal[256]; /* why there is no row */
  char notice[256];  /* of a prepared layer: why its rows are proved by bounds, not bit for bit; else empty */
} fourfold_choice;

/* Which kernels a layer would run on an architecture ("sm120", "sm90"; no device is needed). A refusal is an
 * answer: FOURFOLD_OK with accepted = 0. Shapes no layer has, and unknown architectures, are errors. Any
 * thread. */
FOURFOLD_API fourfold_status fourfold_choose(const char* arch, const fourfold_layer_options* options,
                                             fourfold_choice* choice);

/* The table of kernel rows of the context's device as JSON, zero-terminated: shared memory part by part,
 * threads, registers. Writes *needed, the bytes with the zero; text may be null when capacity is 0. A
 * capacity below *needed is FOURFOLD_INVALID_REQUEST and leaves text alone. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_plan_json(const fourfold_context* context, char* text, size_t capacity,
                                                size_t* needed);

/* ---- quantising ---- */

/* A matrix that is not FP4 yet. */
typedef struct fourfold_quantize_options {
  uint32_t struct_size;
  int32_t format; /* fourfold_format */
  int64_t rows;
  int64_t columns;     /* a multiple of 16 (NVFP4) or 32 (MXFP4) */
  const float* values; /* [rows, columns], host memory */
  float amax; /* NVFP4: the largest magnitude the global scale is made for; 0: the matrix's own. Gate and up
               * of one expert share the larger of theirs. Weights beyond it saturate */
  uint32_t reserved;
} fourfold_quantize_options;

/* Quantises in host memory to what a checkpoint has and fourfold_pack_options takes: codes [rows, columns /
 * 2], scales [rows, columns / 16 or 32], and the global scale that multiplies them (1 for MXFP4). Weights
 * that are NaN or infinite are FOURFOLD_BAD_CHECKPOINT, named by place. Any thread. */
FOURFOLD_API fourfold_status fourfold_quantize_host(const fourfold_quantize_options* options, void* codes,
                                                    void* scales, float* global_scale);

/* ---- packing ---- */

/* One matrix as a checkpoint stores it (or the gate and up matrices of one expert), to be packed into tile
 * records. Experts are packed one by one; expert e of a layer starts at e * packed bytes. */
typedef struct fourfold_pack_options {
  uint32_t struct_size;
  int32_t format;      /* fourfold_format */
  int32_t activations; /* fourfold_activations: the path that will read the records */
  int32_t row_order;   /* fourfold_row_order */
  int64_t rows;       /* of each matrix, a multiple of 32; the packed form of gate and up has twice as many */
  int64_t columns;    /* K, a multiple of 64 */
  const void* codes;  /* [rows, columns / 2] even column in the low nibble; of gate with FOURFOLD_GATE_UP */
  const void* scales; /* NVFP4: E4M3 [rows, columns / 16]; MXFP4: UE8M0 [rows, columns / 32]; linear */
  const void* up_codes; /* FOURFOLD_GATE_UP only, else null */
  const void* up_scales;
} fourfold_pack_options;

/* Bytes of the packed form; the pointers may be null. Any thread. */
FOURFOLD_API fourfold_status fourfold_packed_bytes(const fourfold_pack_options* options, size_t* bytes);

/* Packs in host memory, on all cores. Scales that cannot be multiplied are FOURFOLD_BAD_CHECKPOINT, named by
 * place. Any thread. */
FOURFOLD_API fourfold_status fourfold_pack_host(const fourfold_pack_options* options, void* records,
                                                size_t records_bytes);

/* Packs on the device, at the speed of its memory: all pointers are device memory, records aligned to 16
 * bytes, codes and scales to 4. Scales are taken as they are: a NaN among them becomes a NaN in the results.
 * Capture-safe. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_pack_device(fourfold_context* context,
                                                  const fourfold_pack_options* options, void* records,
                                                  size_t records_bytes);

/* A stored weight scale (of a fourfold_convention) as the factor the kernels multiply with. Any thread. */
FOURFOLD_API fourfold_status fourfold_weight_scale(int32_t convention, float stored, float* scale);

/* A stored input scale as the pair W4A4 needs: the quantiser multiplies with inverse, the result with scale.
 * Any thread. */
FOURFOLD_API fourfold_status fourfold_input_scale(int32_t convention, float stored, float* scale,
                                                  float* inverse);

/* ---- the MoE layer ---- */

typedef struct fourfold_layer fourfold_layer;

/* Router logits and tokens -> softmax, top-k, gate/up, SwiGLU, down, weighted sum. Chooses the kernels, once.
 * The result works for every token count from 0 to options->tokens. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_layer_prepare(fourfold_context* context,
                                                    const fourfold_layer_options* options,
                                                    fourfold_layer** layer);

/* Null does nothing. The caller knows that no run is in flight. One thread at a time. */
FOURFOLD_API void fourfold_layer_release(fourfold_layer* layer);

/* Device memory a run needs. Contents need not survive between runs, so layers of one stream may share it:
 * take the largest. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_layer_workspace_bytes(const fourfold_layer* layer, size_t* bytes);

/* The rows that were chosen. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_layer_choice(const fourfold_layer* layer, fourfold_choice* choice);

/* Device memory, read by the kernels until they are done. Scales are arrays of E floats; a null global scale
 * stands for 1 everywhere. */
typedef struct fourfold_layer_weights {
  uint32_t struct_size;
  uint32_t reserved;
  const void* gate_up;     /* records of E matrices, FOURFOLD_GATE_UP, 2I x H; 16-byte aligned */
  const void* down;        /* records of E matrices, FOURFOLD_PLAIN, H x I */
  const float* gate_scale; /* global scales, as fourfold_weight_scale gives them */
  const float* up_scale;
  const float* down_scale;
  const float* gate_up_input_scale; /* W4A4 only, as fourfold_input_scale gives them */
  const float* gate_up_input_inverse;
  const float* down_input_scale;
  const float* down_input_inverse;
} fourfold_layer_weights;

/* What logits become before the k largest are chosen. */
typedef enum fourfold_score { FOURFOLD_SOFTMAX = 0, FOURFOLD_SIGMOID = 1 } fourfold_score;

typedef struct fourfold_layer_call {
  uint32_t struct_size;
  int32_t tokens;      /* 0 to what was prepared */
  const float* logits; /* [tokens, E] f32, before the softmax or sigmoid */
  const void* input;   /* [tokens, H] bf16, 16-byte aligned */
  void* output;        /* [tokens, H] bf16, 16-byte aligned; not the input */
  void* workspace;     /* 256-byte aligned */
  size_t workspace_bytes;
  uint32_t keep_softmax; /* 0: the k weights are renormalised to sum to 1; 1: they are left as they are */
  uint32_t reserved;
  /* Of other routers than the softmax; zeros are the softmax. */
  int32_t score;            /* fourfold_score */
  float weight_scale;       /* every weight is multiplied by it; 0 stands for 1 */
  const float* choice_bias; /* sigmoid: [E], added to the scores for choosing, not in the weights; or null */
  int32_t groups;           /* sigmoid: so many equal runs of experts, 2 to 32; 0: none */
  int32_t groups_kept;      /* those whose two best sum to the most; experts of others are not chosen */
} fourfold_layer_call;

/* Capture-safe; allocates nothing, waits for nothing. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_layer_run(fourfold_layer* layer, const fourfold_layer_weights* weights,
                                                const fourfold_layer_call* call);

/* ---- the plain grouped GEMM ---- */

typedef struct fourfold_gemm fourfold_gemm;

typedef enum fourfold_result { FOURFOLD_BF16 = 1, FOURFOLD_F32 = 2 } fourfold_result;

typedef struct fourfold_gemm_options {
  uint32_t struct_size;
  int32_t columns;         /* K, a multiple of 64 */
  int32_t out_columns;     /* N, a multiple of 64 */
  int32_t experts;         /* 1 to 1,024 */
  int32_t rows;            /* the most a run may bring */
  int32_t format;          /* fourfold_format */
  int32_t activations;     /* fourfold_activations */
  int32_t role;            /* fourfold_role */
  int32_t result;          /* fourfold_result: F32 exists for W4A16 in the decode role */
  uint32_t allow_emulated; /* as for a layer */
} fourfold_gemm_options;

/* output[r] = input[r] times the transposed matrix of r's expert. Rows are sorted by expert: expert e owns
 * rows offsets[e] to offsets[e + 1] - 1. Rows outside stay untouched. The offsets stay on the device, where
 * the host never reads them; if they descend or leave 0 to rows, no row is computed. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_gemm_prepare(fourfold_context* context,
                                                   const fourfold_gemm_options* options,
                                                   fourfold_gemm** gemm);

/* Null does nothing. One thread at a time. */
FOURFOLD_API void fourfold_gemm_release(fourfold_gemm* gemm);

/* One thread at a time. */
FOURFOLD_API fourfold_status fourfold_gemm_workspace_bytes(const fourfold_gemm* gemm, size_t* bytes);

/* The chosen row's name, in the handle's memory; empty for null. One thread at a time. */
FOURFOLD_API const char* fourfold_gemm_row(const fourfold_gemm* gemm);
/* What a layer's choice has as its notice, likewise. */
FOURFOLD_API const char* fourfold_gemm_notice(const fourfold_gemm* gemm);

typedef struct fourfold_gemm_call {
  uint32_t struct_size;
  int32_t rows;             /* of input and output; 0 to what was prepared */
  const void* weights;      /* records of E matrices, FOURFOLD_PLAIN, N x K; 16-byte aligned */
  const float* scale;       /* [E] global scales; null: 1 */
  const float* input_scale; /* [E] W4A4 only */
  const float* input_inverse;
  const int32_t* offsets; /* [E + 1] */
  const void* input;      /* [rows, K] bf16, 16-byte aligned */
  void* output;           /* [rows, N] bf16 or f32, 16-byte aligned */
  void* workspace;        /* 256-byte aligned */
  size_t workspace_bytes;
} fourfold_gemm_call;

/* Capture-safe; allocates nothing, waits for nothing. One thread at a time. */
FOURFOLD_API fourfold_status fourfold_gemm_run(fourfold_gemm* gemm, const fourfold_gemm_call* call);

#if defined(__cplusplus)
} /* extern "C" */
#endif

#endif /* FOURFOLD_KERNELS_H */
