// Which rows a layer runs with: a total function of chip, shape, format, role and token count. It answers
// with rows or with a reason, never with something slower and silent.
#pragma once

#include <string>
#include <string_view>

#include "base/weight_format.h"
#include "kernels/record/record.h"
#include "plan/arch.h"

namespace fourfold::moe_layer {

struct Shape {
  int hidden = 0;        // H
  int intermediate = 0;  // I
  int experts = 0;       // E
  int top_k = 0;         // k
};

// w8a8: fp8 weights and fp8 tokens, for prompt rows of one matrix.
enum class Activations { w4a16, w4a4, w8a8 };
// Role decides arithmetic, batch never does: prompt rows and generated rows may round differently, but a
// row's result never depends on its neighbours.
enum class Role { prefill, decode };

struct Request {
  Shape shape;
  Activations activations = Activations::w4a16;
  WeightFormat format = WeightFormat::nvfp4;
  Role role = Role::decode;
  int tokens = 1;
  // W4A16 of generated tokens from weights that are packed for W4A4, as the prompts beside them are run.
  bool packed_for_w4a4 = false;
  int rows = 0;          // of a lone matrix, where the number of its tiles matters; 0: not said
  bool clamped = false;  // biases on every matrix, and the clamped SwiGLU between them
  // The order of the records the request's rows read.
  record::BitOrder order() const {
    return activations == Activations::w4a4 || packed_for_w4a4 ? record::BitOrder::fp4
                                                               : record::BitOrder::half;
  }
};

// Whether a model whose experts have input scales is served with W4A4 prompts on this chip, if its
// instruction does what it should; generated tokens then run in W4A16 from the same records.
constexpr bool serves_fp4_prompts(const plan::ArchFacts& arch) { return arch.has_fp4_mma; }

// Whether prompt rows of fp8 matrices can run FP8 x FP8 (w8a8).
constexpr bool has_fp8_prompts(const plan::ArchFacts& arch) { return arch.has_wgmma || arch.has_fp4_mma; }

inline constexpr std::string_view kByModel =
    "by the model of kernels' time (docs/decisions/0035); no such card was measured";
inline constexpr std::string_view kFp8Mma =
    "FP8 x FP8 by mma (docs/decisions/0039); no such card was measured";
struct Choice {
  std::string refusal;  // why there is no row; empty when there is
  bool few = false;     // the two-kernel path for one to four tokens
  std::string gate_up_row;
  std::string down_row;
  int tile_tokens = 0;       // N of both rows
  bool emulated = false;     // the FP4 instruction is emulated on this chip: proof only, never to serve
  std::string_view because;  // why this row, where it was not measured; else empty
  bool ok() const { return refusal.empty(); }
};

// K that rows are proved for: of a layer's experts, and of a lone matrix, such as the output projection of
// 128 heads of 128 or a dense MLP of 18,432.
inline constexpr int kMaxLayerColumns = 8192, kMaxMatrixColumns = 65536;

// Throws invalid_request for a shape that no layer has (names the numbers).
void require_shape(const Request& request, int most_columns = kMaxLayerColumns);
Choice choose(const plan::ArchFacts& arch, const Request& request);
// The two-kernel path, which can take up to four tokens, whether or not choose() prefers it.
Choice few_choice(const Request& request);
// Why a GEMM1 of that path has no room for the tokens; empty if it has.
std::string gate_up_refusal(std::string_view kernel, const Request& request);
// Tokens of a pass where one expert gets all of them: their number is known, and the narrowest pass that
// takes them is the best.
constexpr int one_expert_tokens(int tokens) {
  return tokens <= 8 ? 8 : tokens <= 16 ? 16 : tokens <= 32 ? 32 : 64;
}
// The same for one grouped GEMM without router: H is its K, top_k is 1, gate_up_row the row.
Choice choose_gemm(const plan::ArchFacts& arch, const Request& request);

// Known shapes: 35b, 122b, 397b, 397b-tp4, or "H,I,E,k". Throws invalid_request otherwise.
Shape parse_shape(const std::string& text);

}  // namespace fourfold::moe_layer
