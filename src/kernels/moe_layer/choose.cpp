#include "kernels/moe_layer/choose.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/published_shapes.h"
#include "kernels/moe/loop_columns.h"
#include "kernels/moe/paths.h"
#include "kernels/moe/row_list.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/record/record.h"

namespace fourfold::moe_layer {
namespace {

// Segments of K up to which the few-token GEMM1 has its warps feed their own rings.
constexpr int kPlainSegments = 4;
// Up to this hidden size a block of the few-token GEMM2 has 16 outputs: 32 would leave SMs without a block.
constexpr int kHalfStripHidden = 2048;

bool is_fp4(WeightFormat format) { return format == WeightFormat::nvfp4 || format == WeightFormat::mxfp4; }

// As moe/paths.h names them.
std::string path_name(const Request& request, bool wgmma = false) {
  if (request.activations == Activations::w4a4) return moe::W4a4::name;
  if (request.activations == Activations::w8a8) return wgmma ? moe::W8a8Wgmma::name : moe::W8a8Mma::name;
  if (request.packed_for_w4a4) return moe::W4a16Fp4Order::name;
  const char* weights = is_fp4(request.format) ? "w4" : request.format == WeightFormat::fp8 ? "w8" : "w16";
  return format("{}a16-{}", weights, wgmma ? "wgmma" : "mma");
}

// Columns of the unrolled loop: the largest that divides K; rows for 32 tokens and more, and FP4 rows, have
// no 512.
int unit_columns(int k, bool has_512) {
  if (has_512 && k % 512 == 0) return 512;
  return k % 256 == 0 ? 256 : 64;
}

// Tokens of a pass, from the mean number of tokens an active expert gets. A wider pass reads an expert's
// weights once for more tokens but keeps fewer warps on an SM.
int stream_tokens(double mean) { return mean <= 4.0 ? 8 : mean <= 8.0 ? 16 : mean <= 16.0 ? 32 : 64; }

double mean_tokens(const Request& request) {
  return static_cast<double>(request.tokens) * request.shape.top_k / request.shape.experts;
}

// The row's name with what its epilogue adds to it.
std::string row_of(const Request& request, std::string_view kernel, int m, int n, int k,
                   std::string_view path) {
  return moe::row_name(kernel, m, n, k, path, format_name(request.format)) +
         (request.clamped ? moe::kClampedName : "");
}

std::string stream_row(const Request& request, int n, int k) {
  const bool is_half = request.activations == Activations::w4a16, has_512 = is_half && n <= 16;
  if (request.clamped) {
    const bool has_ragged = request.format == WeightFormat::mxfp4 && n <= 32;
    const bool ragged = has_ragged && moe::loop_takes(k, moe::kSegmentColumns, true);
    return row_of(request, "moe_stream", 32, n, ragged ? moe::kSegmentColumns : 64, path_name(request));
  }
  // With 64 tokens of weights packed for w4a4 it would spill.
  const bool has_256 = !(is_half && request.packed_for_w4a4 && n == 64);
  return row_of(request, "moe_stream", 32, n, has_256 ? unit_columns(k, has_512) : 64, path_name(request));
}

Choice stream_choice(const Request& request) {
  Choice choice;
  choice.tile_tokens =
      request.shape.experts == 1 ? one_expert_tokens(request.tokens) : stream_tokens(mean_tokens(request));
  choice.gate_up_row = stream_row(request, choice.tile_tokens, request.shape.hidden);
  choice.down_row = stream_row(request, choice.tile_tokens, request.shape.intermediate);
  return choice;
}

// From the third token on, streaming over all SMs and combining is faster (H200, 35b, four tokens: 25 us
// against 29). For two the layers alone are level (18.9 and 18.2), but in a step, where this path has the
// shared expert and the residual along with it, 40 layers take 702 us against 990 (fourfold tune).
constexpr int kFewBest = 2;
static_assert(kFewBest <= moe_few::kFewTokens);

int segments_of(int columns) { return (columns + moe::kSegmentColumns - 1) / moe::kSegmentColumns; }

// Which rows take it was measured: of one and two tokens those whose segments fill the groups of the plain
// GEMM1 (other numbers leave warps idle; 122b, six segments: 30.6 us against moe_stream's 23.5), and of one
// token those that are streamed.
bool few_is_best(const Request& request) {
  const int segments = segments_of(request.shape.hidden);
  return request.tokens <= kFewBest && (request.clamped || (segments & (segments - 1)) == 0 ||
                                        (request.tokens == 1 && segments > kPlainSegments));
}

Choice decode_choice(const Request& request) {
  if (few_is_best(request))
    if (Choice few = few_choice(request); few.ok()) return few;
  return stream_choice(request);
}

struct TileSize {
  int m, n, k;
};

// Whether tiles of m x n of a lone matrix are fewer than two thirds of the SMs of the cards we know (132 to
// 188).
bool leaves_sms_idle(const Request& request, int m, int n) {
  const auto parts = [](int whole, int part) { return (whole + part - 1) / part; };
  return request.rows > 0 && parts(request.rows, m) * parts(request.tokens, n) <= 88;
}

TileSize fp8_tile(const plan::ArchFacts& arch, const Request& request) {
  if (!arch.has_wgmma)  // one tile of so many tokens costs what they cost: narrower ones are for less idle
                        // SMs
    return {128,
            request.tokens <= 32                                         ? 32
            : request.tokens <= 64 || leaves_sms_idle(request, 128, 128) ? 64
                                                                         : 128,
            128};
  if (request.tokens <= 64) return {128, 64, 128};
  return {128, request.tokens <= 128 || leaves_sms_idle(request, 128, 256) ? 128 : 256, 128};
}

// Tiles of routed experts in FP4 on SM12x, up to a mean number of tokens of an expert. No such card is here:
// they are what the model of kernels' time takes for fastest (docs/decisions/0035), and a test computes them
// again (Predict.ChoosesTheTilesOfSm12x in tests/cli_model/sm12x_tiles_test.cpp).
struct TileUpTo {
  double mean;
  TileSize tile;
};
constexpr double kAnyMean = std::numeric_limits<double>::infinity();
// 160 tokens are three tiles of 64 or two of 128, which would be emptier.
constexpr TileUpTo kSm12xHalfTiles[] = {
    {4, {128, 8, 256}},     {12, {128, 16, 256}},  {32, {128, 32, 128}},       {80, {128, 64, 128}},
    {120, {128, 128, 128}}, {176, {128, 64, 128}}, {kAnyMean, {128, 128, 128}}};
constexpr TileUpTo kSm12xFp4Tiles[] = {{8, {128, 8, 256}},
                                       {16, {128, 16, 256}},
                                       {32, {128, 32, 128}},
                                       {56, {128, 64, 128}},
                                       {kAnyMean, {128, 128, 256}}};

// The model knows of no waves, which decide where one matrix is all there is, and the clamped rows end at 32.
bool chosen_by_model(const plan::ArchFacts& arch, const Request& request) {
  return arch.has_fp4_mma && is_fp4(request.format) && request.shape.experts > 1 && !request.clamped;
}

TileSize modelled_tile(const Request& request) {
  const bool is_half = request.activations == Activations::w4a16;
  const std::span<const TileUpTo> tiles =
      is_half ? std::span<const TileUpTo>(kSm12xHalfTiles) : std::span<const TileUpTo>(kSm12xFp4Tiles);
  return std::ranges::find_if(tiles, [&](const TileUpTo& tile) { return mean_tokens(request) <= tile.mean; })
      ->tile;
}

TileSize prefill_tile(const plan::ArchFacts& arch, const Request& request) {
  if (chosen_by_model(arch, request)) return modelled_tile(request);
  const double mean = mean_tokens(request);
  if (request.activations == Activations::w8a8) return fp8_tile(arch, request);
  if (request.activations == Activations::w4a16 && arch.has_wgmma) {
    // H200, 35b, prompts of 2,048 tokens (mean 64): 40 layers in 14.4 ms with tiles of 64, 15.4 with 128.
    if (is_fp4(request.format)) return {256, mean <= 64.0 ? 64 : 128, 128};
    if (mean > 48.0 && leaves_sms_idle(request, 256, 128))
      return {128, leaves_sms_idle(request, 128, 128) ? 64 : 128, 64};
    return {256, mean <= 48.0 ? 64 : 128, 64};
  }
  if (!is_fp4(request.format)) {
    if (mean <= 16.0) return {128, 16, 128};
    if (mean <= 32.0) return {128, 32, 128};
    if (mean <= 64.0) return {128, 64, 128};
    return request.format == WeightFormat::bf16 ? TileSize{128, 128, 64} : TileSize{256, 128, 64};
  }
  if (mean <= 8.0) return {128, 8, 256};
  if (mean <= 16.0) return {128, 16, 256};
  // With 16-bit tokens tiles of 32 are fastest for more, too: their sums leave room for more in flight. H200,
  // 35b, us at 1,024 and 8,192 tokens, these rows: 460, 2,668; 128x64x128 777, 4,445; 256x128x64 686, 2,850.
  if (mean <= 32.0 || request.activations == Activations::w4a16) return {128, 32, 128};
  return mean <= 64.0 ? TileSize{128, 64, 128} : TileSize{128, 128, 128};
}

Choice prefill_choice(const plan::ArchFacts& arch, const Request& request) {
  const TileSize tile = prefill_tile(arch, request);
  const bool wgmma = request.activations != Activations::w4a4 && arch.has_wgmma;
  Choice choice;
  choice.tile_tokens = tile.n;
  choice.gate_up_row = choice.down_row =
      row_of(request, "moe_gemm", tile.m, tile.n, tile.k, path_name(request, wgmma));
  if (chosen_by_model(arch, request)) choice.because = kByModel;
  if (request.activations == Activations::w8a8 && !wgmma) choice.because = kFp8Mma;
  return choice;
}

// Why the chip has no row for this; empty if it has.
std::string refusal(const plan::ArchFacts& arch, const Request& request) {
  if (!arch.has_bulk_copy)
    return format("{} has no bulk copies; kernels exist for sm90, sm120 and sm121", arch.name);
  if (!arch.has_fp4_mma && !arch.has_wgmma)
    return format("no kernels are compiled for {}; there are some for sm90, sm120 and sm121", arch.name);
  if (request.format == WeightFormat::f32) return "no row multiplies f32 weights; hold them as bf16";
  const bool has_clamped = request.format == WeightFormat::mxfp4 || request.format == WeightFormat::bf16;
  if (request.clamped && !(has_clamped && request.activations == Activations::w4a16))
    return format(
        "experts with biases and a clamped SwiGLU have rows for mxfp4 and bf16 weights and 16-bit tokens; "
        "these are {}{}",
        format_name(request.format),
        request.activations == Activations::w4a16 ? "" : " with quantised tokens");
  if (request.activations == Activations::w4a4 && request.format == WeightFormat::mxfp4)
    return "MXFP4 activations exist as a verified row only; use w4a16 for MXFP4 weights";
  if (request.activations == Activations::w4a4 && !is_fp4(request.format))
    return format("FP4 activations need FP4 weights; use w4a16 for {} weights", format_name(request.format));
  if (request.activations == Activations::w8a8) {
    if (request.format != WeightFormat::fp8)
      return format("FP8 activations need fp8 weights; these are {}", format_name(request.format));
    if (request.role != Role::prefill) return "FP8 activations (w8a8) are for prompt rows";
    if (!has_fp8_prompts(arch)) return format("{} has no rows for FP8 activations (w8a8)", arch.name);
  }
  if (!request.packed_for_w4a4 || request.activations == Activations::w4a4) return {};
  if (request.format != WeightFormat::nvfp4)
    return format("weights packed for w4a4 are nvfp4; these are {}", format_name(request.format));
  if (request.role == Role::prefill)
    return "no row multiplies prompt rows in w4a16 from weights packed for w4a4";
  return {};
}

template <class ChooseDecode>
Choice choose_by_role(const plan::ArchFacts& arch, const Request& request, int most_columns,
                      const ChooseDecode& choose_decode) {
  require_shape(request, most_columns);
  Choice choice;
  choice.refusal = refusal(arch, request);
  if (!choice.ok()) return choice;
  choice = request.role == Role::decode ? choose_decode(request) : prefill_choice(arch, request);
  choice.emulated = request.activations == Activations::w4a4 && !arch.has_fp4_mma;
  return choice;
}

}  // namespace

std::string gate_up_refusal(std::string_view kernel, const Request& request) {
  const int hidden = request.shape.hidden, token_bytes = request.tokens * moe_few::row_stride(hidden);
  const bool streamed = kernel == moe_few::kStreamKernel;
  if (!streamed && segments_of(hidden) > moe_few::kMaxSegments)
    return format("{} columns; GEMM1 takes up to {}", hidden, moe_few::kMaxSegments * moe::kSegmentColumns);
  const int room = streamed ? moe_few::kStreamTokenBytes : moe_few::kGateUpTokenBytes;
  if (token_bytes <= room) return {};
  return format("{} tokens of {} columns are {} bytes; GEMM1's shared memory has room for {}", request.tokens,
                hidden, token_bytes, room);
}

Choice few_choice(const Request& request) {
  const Shape& shape = request.shape;
  // Up to four segments of K a warp of the plain GEMM1 has one or two of them, all on their way at once
  // (H200, 35b: 8.5 us against 9.1); of more, one warp brings the others their weights (docs/decisions/0033).
  // Clamped experts have no other.
  const bool streamed = request.clamped || (segments_of(shape.hidden) > kPlainSegments &&
                                            gate_up_refusal(moe_few::kStreamKernel, request).empty());
  const char* const first_kernel = streamed ? moe_few::kStreamKernel : "moe_few_gate_up";
  const auto refuse = [](std::string why) {
    Choice none;
    none.refusal = std::move(why);
    return none;
  };
  if (request.activations != Activations::w4a16 || request.role != Role::decode)
    return refuse("the two-kernel path is for generated tokens in w4a16");
  if (!is_fp4(request.format))
    return refuse(format("the two-kernel path has no {} rows", format_name(request.format)));
  if (request.clamped && request.format != WeightFormat::mxfp4)
    return refuse(format("the two-kernel path has no {} rows with biases and a clamped SwiGLU",
                         format_name(request.format)));
  if (request.tokens < 1 || request.tokens > moe_few::kFewTokens)
    return refuse(
        format("{} tokens; the two-kernel path takes 1 to {}", request.tokens, moe_few::kFewTokens));
  if (shape.experts > moe_few::kFewExperts)
    return refuse(
        format("{} experts; the two-kernel path ranks up to {}", shape.experts, moe_few::kFewExperts));
  if (shape.top_k > moe_few::kFewTopK)
    return refuse(format("top-k {}; the two-kernel path takes up to {}", shape.top_k, moe_few::kFewTopK));
  if (std::string why = gate_up_refusal(first_kernel, request); !why.empty()) return refuse(std::move(why));
  const int down_rows = shape.hidden <= kHalfStripHidden ? 16 : 32, pairs = request.tokens * shape.top_k;
  const moe_few::DownBytes down(pairs, shape.intermediate, down_rows, request.clamped);
  if (down.total() > moe_few::kDownBytes)
    return refuse(
        format("{} pairs of {} columns and their sums are {} bytes; GEMM2's shared memory has room "
               "for {}",
               pairs, shape.intermediate, down.total(), moe_few::kDownBytes));
  Choice choice;
  choice.few = true;
  choice.tile_tokens = moe_few::kFewTokens;
  const auto row = [&](const char* kernel, int rows) {
    return row_of(request, kernel, rows, moe_few::kFewTokens, moe::kSegmentColumns, path_name(request));
  };
  choice.gate_up_row = row(first_kernel, 32);
  choice.down_row = row("moe_few_down", down_rows);
  return choice;
}

void require_shape(const Request& request, int most_columns) {
  const Shape& s = request.shape;
  if (s.hidden <= 0 || s.hidden % 64 != 0 || s.intermediate <= 0 || s.intermediate % 64 != 0)
    fail(Code::invalid_request, "hidden size {} and intermediate size {} must be positive multiples of 64",
         s.hidden, s.intermediate);
  if (s.hidden > most_columns || s.intermediate > most_columns)
    fail(Code::invalid_request, "hidden size {} and intermediate size {} must be at most {}", s.hidden,
         s.intermediate, with_commas(most_columns));
  if (s.experts < 1 || s.experts > moe::kMaxExperts)
    fail(Code::invalid_request, "{} experts; 1 to {} are supported", s.experts, moe::kMaxExperts);
  if (s.top_k < 1 || s.top_k > moe::kMaxTopK)
    fail(Code::invalid_request, "top-k is {}; 1 to {} are supported", s.top_k, moe::kMaxTopK);
  if (s.top_k > s.experts) fail(Code::invalid_request, "top-k {} exceeds the {} experts", s.top_k, s.experts);
  if (request.tokens < 0) fail(Code::invalid_request, "{} tokens; a batch has none or more", request.tokens);
  if (static_cast<long long>(request.tokens) * s.top_k > (1 << 24))
    fail(Code::invalid_request, "{} tokens with top-k {} exceed {} pairs; split the batch", request.tokens,
         s.top_k, 1 << 24);
  // Kernels count places in token rows in 16-byte chunks, 32 bits wide.
  const long long slots = static_cast<long long>(request.tokens) * s.top_k + 8LL * s.experts;
  const long long chunks =
      std::max(static_cast<long long>(request.tokens) * s.hidden, slots * s.intermediate) / 8;
  if (chunks >= 1LL << 32)
    fail(Code::invalid_request,
         "{} tokens of {} columns with top-k {} are {} chunks of 16 bytes; a call takes fewer than {}: split "
         "the batch",
         request.tokens, std::max(s.hidden, s.intermediate), s.top_k, chunks, 1LL << 32);
}

Choice choose(const plan::ArchFacts& arch, const Request& request) {
  if (request.activations == Activations::w8a8) {
    Choice none;
    none.refusal = "FP8 activations (w8a8) are for dense matrices; use w4a16 or w4a4 for experts";
    return none;
  }
  return choose_by_role(arch, request, kMaxLayerColumns, decode_choice);
}

Choice choose_gemm(const plan::ArchFacts& arch, const Request& request) {
  return choose_by_role(arch, request, kMaxMatrixColumns, stream_choice);
}

Shape parse_shape(const std::string& text) {
  for (const MoeShape& known : kPublishedShapes)
    if (text == known.name) return {known.hidden, known.intermediate, known.experts, known.top_k};
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int value = 0;
    const auto [next, status] = std::from_chars(at, end, value);
    if (status != std::errc{} || (next != end && *next != ',')) break;
    numbers.push_back(value);
    at = next + (next != end);
    if (next == end) break;
  }
  if (numbers.size() != 4 || at != end)
    fail(Code::invalid_request, "unknown shape '{}': use 35b, 122b, 397b, 397b-tp4 or H,I,E,k", text);
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

}  // namespace fourfold::moe_layer
