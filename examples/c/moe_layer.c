/* A mixture-of-experts layer through libfourfold_kernels, and the same layer written out in doubles to check
 * it: softmax over the router's logits, the k best experts, SwiGLU between two NVFP4 matrices, the weighted
 * sum.
 *
 *   moe_layer [cuda | cuda:N | sim:sm120 | sim:sm90]
 */
#include "numbers.h"

enum { HIDDEN = 128, INNER = 64, EXPERTS = 4, TOP_K = 2, TOKENS = 9 };

typedef struct {
  matrix gate[EXPERTS], up[EXPERTS], down[EXPERTS];
} model;

/* ---- the layer on the device ---- */

static size_t pack_expert(const matrix* first, const matrix* up, uint8_t* records, size_t room_bytes) {
  fourfold_pack_options options = FOURFOLD_INIT(fourfold_pack_options);
  options.format = FOURFOLD_NVFP4;
  options.activations = FOURFOLD_W4A16;
  options.row_order = up ? FOURFOLD_GATE_UP : FOURFOLD_PLAIN;
  options.rows = first->rows;
  options.columns = first->columns;
  options.codes = first->codes;
  options.scales = first->scales;
  options.up_codes = up ? up->codes : NULL;
  options.up_scales = up ? up->scales : NULL;
  size_t bytes = 0;
  must(fourfold_packed_bytes(&options, &bytes), "packed bytes");
  if (records != NULL) must(fourfold_pack_host(&options, records, room_bytes), "pack");
  return bytes;
}

static void* upload_scales(fourfold_context* context, const matrix* matrices) {
  float scales[EXPERTS];
  for (int e = 0; e < EXPERTS; ++e) scales[e] = matrices[e].global_scale;
  return upload(context, scales, sizeof scales);
}

static fourfold_layer_weights upload_weights(fourfold_context* context, const model* m) {
  const size_t first = pack_expert(&m->gate[0], &m->up[0], NULL, 0),
               second = pack_expert(&m->down[0], NULL, NULL, 0);
  uint8_t* gate_up = room(EXPERTS * first);
  uint8_t* down = room(EXPERTS * second);
  for (int e = 0; e < EXPERTS; ++e) {
    pack_expert(&m->gate[e], &m->up[e], gate_up + e * first, first);
    pack_expert(&m->down[e], NULL, down + e * second, second);
  }
  fourfold_layer_weights weights = FOURFOLD_INIT(fourfold_layer_weights);
  weights.gate_up = upload(context, gate_up, EXPERTS * first);
  weights.down = upload(context, down, EXPERTS * second);
  weights.gate_scale = upload_scales(context, m->gate);
  weights.up_scale = upload_scales(context, m->up);
  weights.down_scale = upload_scales(context, m->down);
  free(gate_up);
  free(down);
  return weights;
}

static void run_layer(fourfold_context* context, const fourfold_layer_weights* weights, fourfold_role role,
                      int tokens, const float* logits, const uint16_t* input, uint16_t* output) {
  fourfold_layer_options options = FOURFOLD_INIT(fourfold_layer_options);
  options.hidden = HIDDEN;
  options.intermediate = INNER;
  options.experts = EXPERTS;
  options.top_k = TOP_K;
  options.tokens = tokens;
  options.format = FOURFOLD_NVFP4;
  options.activations = FOURFOLD_W4A16;
  options.role = role;
  fourfold_layer* layer = NULL;
  must(fourfold_layer_prepare(context, &options, &layer), "prepare");
  fourfold_choice choice = FOURFOLD_INIT(fourfold_choice);
  must(fourfold_layer_choice(layer, &choice), "choice");
  printf("%s, %d tokens: %s + %s\n", role == FOURFOLD_DECODE ? "decode" : "prefill", tokens,
         choice.gate_up_row, choice.down_row);

  fourfold_layer_call call = FOURFOLD_INIT(fourfold_layer_call);
  void *result = NULL, *workspace = NULL;
  const size_t row_bytes = HIDDEN * sizeof(uint16_t);
  must(fourfold_layer_workspace_bytes(layer, &call.workspace_bytes), "workspace");
  must(fourfold_allocate(context, call.workspace_bytes, &workspace), "allocate");
  must(fourfold_allocate(context, tokens * row_bytes, &result), "allocate");
  call.tokens = tokens;
  call.logits = upload(context, logits, tokens * EXPERTS * sizeof(float));
  call.input = upload(context, input, tokens * row_bytes);
  call.output = result;
  call.workspace = workspace;
  must(fourfold_layer_run(layer, weights, &call), "run");
  must(fourfold_copy_from_device(context, output, result, tokens * row_bytes), "copy from the device");
  fourfold_layer_release(layer);
}

/* ---- the layer in doubles ---- */

/* The k largest logits, ties to the lower expert; the softmax restricted to them. */
static void route(const float* logits, int* expert, double* share) {
  double sum = 0.0;
  for (int rank = 0; rank < TOP_K; ++rank) {
    expert[rank] = -1;
    for (int e = 0; e < EXPERTS; ++e) {
      int taken = 0;
      for (int r = 0; r < rank; ++r) taken |= expert[r] == e;
      if (!taken && (expert[rank] < 0 || logits[e] > logits[expert[rank]])) expert[rank] = e;
    }
    share[rank] = exp((double)logits[expert[rank]] - logits[expert[0]]);
    sum += share[rank];
  }
  for (int rank = 0; rank < TOP_K; ++rank) share[rank] /= sum;
}

/* silu(gate) * up, rounded to bf16 between the two GEMMs. |silu'| <= 1.1; f32 functions are good to 2^-20. */
static estimate swiglu(estimate gate, estimate up) {
  const double silu = gate.value / (1.0 + exp(-gate.value)), value = silu * up.value;
  const double bound =
      1.1 * gate.bound * (fabs(up.value) + up.bound) + fabs(silu) * up.bound + fabs(value) * 0x1p-20;
  return (estimate){value, bound + bf16_rounding(value, bound)};
}

static void reference_row(const model* m, const float* logits, const uint16_t* input, estimate* out) {
  int expert[TOP_K];
  double share[TOP_K];
  estimate x[HIDDEN], inner[INNER];
  route(logits, expert, share);
  for (int k = 0; k < HIDDEN; ++k) x[k] = (estimate){bf16_value(input[k]), 0.0};
  memset(out, 0, HIDDEN * sizeof *out);
  for (int rank = 0; rank < TOP_K; ++rank) {
    const int e = expert[rank];
    for (int j = 0; j < INNER; ++j) inner[j] = swiglu(dot(&m->gate[e], j, x), dot(&m->up[e], j, x));
    for (int i = 0; i < HIDDEN; ++i) {
      const estimate row = dot(&m->down[e], i, inner);
      /* The share is an f32; the prefill kernels round each expert's row to bf16 before the sum. */
      out[i].value += share[rank] * row.value;
      out[i].bound +=
          share[rank] * (row.bound + fabs(row.value) * 0x1p-19 + bf16_rounding(row.value, row.bound));
    }
  }
  for (int i = 0; i < HIDDEN; ++i) out[i].bound += bf16_rounding(out[i].value, out[i].bound);
}

/* Largest error as a share of its bound; NaN counts as infinite. */
static double compare(const model* m, int tokens, const float* logits, const uint16_t* input,
                      const uint16_t* output) {
  double worst = 0.0;
  for (int t = 0; t < tokens; ++t) {
    estimate row[HIDDEN];
    reference_row(m, logits + t * EXPERTS, input + t * HIDDEN, row);
    for (int i = 0; i < HIDDEN; ++i) {
      const double error = fabs(bf16_value(output[t * HIDDEN + i]) - row[i].value);
      const double share = error <= 1e300 ? error / row[i].bound : INFINITY;
      if (share > worst) worst = share;
    }
  }
  return worst;
}

int main(int argc, char** argv) {
  fourfold_context* context = open_device(argc, argv);
  model m;
  for (int e = 0; e < EXPERTS; ++e) {
    m.gate[e] = random_matrix(INNER, HIDDEN);
    m.up[e] = random_matrix(INNER, HIDDEN);
    m.down[e] = random_matrix(HIDDEN, INNER);
  }
  float logits[TOKENS * EXPERTS];
  uint16_t input[TOKENS * HIDDEN], output[TOKENS * HIDDEN];
  for (int i = 0; i < TOKENS * EXPERTS; ++i) logits[i] = random_between(-3.0f, 3.0f);
  for (int i = 0; i < TOKENS * HIDDEN; ++i) input[i] = bf16_bits(random_between(-1.0f, 1.0f));

  const fourfold_layer_weights weights = upload_weights(context, &m);
  const struct {
    fourfold_role role;
    int tokens;
  } cases[] = {{FOURFOLD_DECODE, 3}, {FOURFOLD_DECODE, TOKENS}, {FOURFOLD_PREFILL, TOKENS}};
  int failures = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    run_layer(context, &weights, cases[i].role, cases[i].tokens, logits, input, output);
    const double worst = compare(&m, cases[i].tokens, logits, input, output);
    printf("  %s: largest error is %.3f of its bound, %d values\n", worst <= 1.0 ? "ok" : "WRONG", worst,
           cases[i].tokens * HIDDEN);
    failures += !(worst <= 1.0);
  }
  fourfold_context_close(context);
  for (int e = 0; e < EXPERTS; ++e) {
    free_matrix(&m.gate[e]);
    free_matrix(&m.up[e]);
    free_matrix(&m.down[e]);
  }
  printf(failures ? "failed\n" : "ok\n");
  return failures ? 1 : 0;
}
