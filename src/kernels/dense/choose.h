// Which row runs a dense matrix of one to eight tokens. A total function: every shape within the limits has a
// row. All rows give the same bits, so the choice may look at the number of tokens. Rows that norm need it:
// with too many tokens for their ring they would have no stage to read from.
#pragma once

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/weight_format.h"
#include "kernels/dense/rows.h"

namespace fourfold::dense {

enum class TokenSource { rows, norm };

[[noreturn]] inline void refuse_format(WeightFormat format) {
  fail(Code::unsupported_op, "a dense matrix in {}; there are rows for bf16, fp8 and nvfp4",
       format_name(format));
}

struct DenseChoice {
  std::string row;
  int blocks = 0;
  // Normed tokens were asked for, but would leave too little of the ring: norm_rows goes first, the bits are
  // the same.
  bool separate_norm = false;
};

// Bytes on their way to an SM whose warps all have work.
template <class Row>
constexpr int bytes_in_flight(int columns, int tokens) {
  const int segments = (columns + moe::kSegmentColumns - 1) / moe::kSegmentColumns;
  const int active = segments < Row::warps ? Row::warps / segments * segments : Row::warps;
  const int left = Row::ring_bytes - Row::Prologue::template shared_bytes<Row::warps>(columns, tokens);
  return left <= 0 ? 0 : left / Row::stage_bytes / active * active * Row::stage_bytes;
}

// What covers 4.5 TB/s over 132 SMs at 1.2 us of latency.
inline constexpr int kEnoughInFlight = 40 * 1024;

// Whether the row norms this shape itself: a warp keeps one segment, a pass holds a row, the ring enough.
template <class Row>
requires requires { Row::ring_bytes; }
constexpr bool can_norm(int columns, int tokens) {
  return columns <= moe::kSegmentColumns * Row::warps && pieces_of(columns) <= Row::warps * kPassPieces &&
         bytes_in_flight<Row>(columns, tokens) >= kEnoughInFlight;
}

// Of a row without a ring (dense_near.h): its places hold every width it takes.
template <class Row>
requires(!requires { Row::ring_bytes; }) constexpr bool can_norm(int columns, int) {
  return columns <= Row::columns_max && pieces_of(columns) <= Row::warps * kPassPieces;
}

template <template <class> class RowOf>
DenseChoice choice_of(int rows, int columns, TokenSource source, int tokens, int sm_count) {
  using Normed = RowOf<NormedRows>;
  using Given = RowOf<GivenRows>;
  const bool norms = source == TokenSource::norm && can_norm<Normed>(columns, tokens);
  return {norms ? Normed::name() : Given::name(), std::min(Given::units_of(rows / record::kRows), sm_count),
          source == TokenSource::norm && !norms};
}

// Whether halves of strips are no more than SMs, so that strips would leave half of these without work. Not
// for one token: what the kernel gains there the one in front of it loses, whose loads meet weights that all
// SMs ask for at once (H200, NVFP4: 5.3 to 3.9 us, the delta rule 2.7 to 3.3, GEMM1 7.6 to 8.1; 675 tokens/s
// either way, FP8 615 and 604).
template <class Row>
constexpr bool is_near(int rows, int columns, int tokens, int sm_count) {
  return tokens > 1 && Row::units_of(rows / record::kRows) <= sm_count && columns <= Row::columns_max;
}
template <class Row>
DenseChoice near_choice(int rows) {
  return {Row::name(), Row::units_of(rows / record::kRows), false};
}

// rows and columns: of the packed matrix, multiples of 32 and 64. Row names are the same on every chip.
inline DenseChoice choose_dense(int rows, int columns, WeightFormat format, TokenSource source, int tokens,
                                int sm_count) {
  check(rows > 0 && rows % record::kRows == 0 && columns > 0 && columns % record::kColumns == 0 &&
            tokens >= 1 && tokens <= kTokens && sm_count > 0,
        "a packed matrix times one to eight tokens", rows, columns, tokens);
  using Arch = plan::Sm120;
  using NearFp8 = NearRow<Arch, record::Fp8Format, GivenRows>;
  using NearFp4 = NearRow<Arch, record::Nvfp4, GivenRows>;
  // Many strips an SM and a warp for each of few segments: whole strips in copies of 4 KB. Else halves, of
  // which an SM can have an odd number.
  const bool large = rows >= 2 * record::kRows * sm_count && columns <= 4 * moe::kSegmentColumns;
  // Of a head's many strips four warps cannot decode as many as the memory gives.
  const bool huge = rows >= 16 * record::kRows * sm_count;
  switch (format) {
    case WeightFormat::bf16:
      return large ? choice_of<RowTypes<Arch, record::Bf16Format, 2, 4, 1>::template With>(
                         rows, columns, source, tokens, sm_count)
                   : choice_of<RowTypes<Arch, record::Bf16Format, 1, 8, 1>::template With>(
                         rows, columns, source, tokens, sm_count);
    case WeightFormat::fp8:
      if (source == TokenSource::rows && is_near<NearFp8>(rows, columns, tokens, sm_count))
        return near_choice<NearFp8>(rows);
      return large && !huge ? choice_of<RowTypes<Arch, record::Fp8Format, 2, 4, 2>::template With>(
                                  rows, columns, source, tokens, sm_count)
                            : choice_of<RowTypes<Arch, record::Fp8Format, 2, 8, 1>::template With>(
                                  rows, columns, source, tokens, sm_count);
    case WeightFormat::nvfp4:
      if (source == TokenSource::rows && is_near<NearFp4>(rows, columns, tokens, sm_count))
        return near_choice<NearFp4>(rows);
      // Nor can eight of FP4's: on an H200 the 35B's takes 107 us with them, 36 less with sixteen; its
      // bytes 62.
      if (huge && (source == TokenSource::rows ||
                   can_norm<FewRow<Arch, record::Nvfp4, NormedRows, 2, 16, 1>>(columns, tokens)))
        return choice_of<RowTypes<Arch, record::Nvfp4, 2, 16, 1>::template With>(rows, columns, source,
                                                                                 tokens, sm_count);
      return large && !huge ? choice_of<RowTypes<Arch, record::Nvfp4, 2, 4, 4>::template With>(
                                  rows, columns, source, tokens, sm_count)
                            : choice_of<RowTypes<Arch, record::Nvfp4, 2, 8, 2>::template With>(
                                  rows, columns, source, tokens, sm_count);
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  refuse_format(format);
}

// A bf16 matrix and one of another format with the same input to be normed, in one launch.
struct PairChoice {
  std::string row;  // empty: they go one by one
  int first_blocks = 0;
  int blocks = 0;
};

template <class Pair>
PairChoice pair_choice(int first_rows, int second_rows, int columns, int tokens, int sm_count) {
  using First = typename Pair::First;
  using Second = typename Pair::Second;
  if (!can_norm<First>(columns, tokens) || !can_norm<Second>(columns, tokens)) return {};
  const int first = First::units_of(first_rows / record::kRows),
            second = Second::units_of(second_rows / record::kRows);
  if (first + second <= sm_count) return {Pair::name(), first, first + second};
  if (Pair::is_near) return {};
  // Each SM about as many bytes.
  const double first_bytes = static_cast<double>(first) * First::copy_bytes,
               second_bytes = static_cast<double>(second) * Second::copy_bytes;
  const int share = static_cast<int>(sm_count * first_bytes / (first_bytes + second_bytes)) + 1;
  const int first_blocks = std::min({first, share, sm_count - 1});
  return {Pair::name(), first_blocks, first_blocks + std::min(second, sm_count - first_blocks)};
}

inline PairChoice choose_pair(int first_rows, int second_rows, int columns, WeightFormat second, int tokens,
                              int sm_count) {
  using Arch = plan::Sm120;
  switch (second) {
    case WeightFormat::bf16: return {};  // one matrix
    case WeightFormat::fp8:
      return pair_choice<PairOf<Arch, record::Fp8Format, 1>>(first_rows, second_rows, columns, tokens,
                                                             sm_count);
    case WeightFormat::nvfp4:
      if (tokens > 1)  // as is_near()
        if (const PairChoice near =
                pair_choice<NearPair<Arch>>(first_rows, second_rows, columns, tokens, sm_count);
            !near.row.empty())
          return near;
      return pair_choice<PairOf<Arch, record::Nvfp4, 2>>(first_rows, second_rows, columns, tokens, sm_count);
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  refuse_format(second);
}

// The row whose matrix dense_table takes along with the tables of routing; empty: none of this format.
inline std::string dense_of_table(WeightFormat format) {
  using Arch = plan::Sm120;
  switch (format) {
    case WeightFormat::bf16: return FewRow<Arch, record::Bf16Format, GivenRows, 1, 8, 1>::name();
    case WeightFormat::fp8: return NearRow<Arch, record::Fp8Format, GivenRows>::name();
    case WeightFormat::nvfp4: return NearRow<Arch, record::Nvfp4, GivenRows>::name();
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  return {};
}

}  // namespace fourfold::dense
