// The rows of the dense decode kernel and of the row norm. Names read MxNxK: a unit's rows, the tokens, the
// segment of K a warp sums; any K that is a multiple of 64 runs on them.
#pragma once

#include <string>
#include <type_traits>

#include "kernels/dense/dense_few.h"
#include "kernels/dense/dense_many.h"
#include "kernels/dense/dense_near.h"
#include "kernels/dense/dense_pair.h"
#include "kernels/dense/dense_sum.h"
#include "kernels/dense/dense_sum_norm.h"
#include "kernels/dense/dense_table.h"
#include "kernels/dense/dense_tall.h"
#include "kernels/dense/many_pair.h"
#include "kernels/dense/norm_fp4.h"
#include "kernels/dense/norm_prompt.h"
#include "kernels/dense/norm_rows.h"
#include "kernels/dense/quantize_rows.h"
#include "kernels/launch/row.h"
#include "plan/arch.h"

namespace fourfold::dense {

// Tiles    m16 tiles of a unit: 2 is a strip, 1 half of one (bf16 only: fp8's would be copies too small for
//          the copy engine, and FP4's scales lie between the tiles).
// Warps    of a block; there is a block an SM.
// Records  of a copy, which fills a stage of the ring.
// Biased   with the code for a bias; named apart, and chosen where a matrix has one (biased_row()).
//
// The ring takes what the partial sums leave of the shared memory; normed tokens take theirs from it.
template <class ArchT, class FormatT, class PrologueT, int TilesN, int WarpsN, int RecordsN,
          bool IsOfPair = false, bool Biased = false>
struct FewRow {
  using Arch = ArchT;
  using Format = FormatT;
  using Prologue = PrologueT;
  using Params = DenseParams;
  static constexpr int tiles = TilesN;
  static constexpr int warps = WarpsN;
  static constexpr int threads = 32 * WarpsN;
  static constexpr int blocks_per_sm = 1;
  // SM90 has shared memory for two such blocks. With half its registers each, the next kernel's blocks start,
  // and fetch their weights, beside this one's.
  // Sixteen warps would have too few: they are for the head, behind which nothing can start early.
  static constexpr int register_blocks = std::is_base_of_v<plan::Sm90, ArchT> && WarpsN <= 8 ? 2 : 1;
  static constexpr int stage_records = RecordsN;
  static constexpr bool is_of_pair = IsOfPair;  // dense_pair.h
  static constexpr bool is_biased = Biased;
  // Not with whole strips: they would spill, or leave too few registers to the next kernel's blocks.
  static constexpr bool reads_ahead = TilesN == 1 && !IsOfPair;
  // Of one record.
  static constexpr int copy_bytes = TilesN == 2 ? record::kRecordBytes<FormatT> : FormatT::tile_bytes;
  static constexpr int stage_bytes = RecordsN * copy_bytes;
  // As much for rows that do not norm: both have the same ring.
  static constexpr int other_bytes =
      static_cast<int>(sizeof(PartialSums<WarpsN, TilesN>) + sizeof(TotalSums<TilesN>) +
                       sizeof(NormedRows::Storage<WarpsN>)) +
      device::kBarrierBytes;
  static constexpr int ring_bytes = (ArchT::smem_bytes_per_block - other_bytes) / stage_bytes * stage_bytes;
  static_assert(TilesN == 2 || (TilesN == 1 && RecordsN == 1 && !record::kHasBlockScales<FormatT>));
  static_assert(kSegmentRecords % RecordsN == 0);
  using Storage = FewStorage<FewRow>;

  static constexpr int units_of(int strips) { return TilesN == 2 ? strips : 2 * strips; }
  static FOURFOLD_DEVICE int units(const DenseParams& params) { return units_of(params.strips); }
  static constexpr const char* products = "mma";
  static std::string name() {
    const std::string name = format("dense_few {}x{}x{} {} {} w{}", 16 * TilesN, kTokens,
                                    moe::kSegmentColumns, PrologueT::name, FormatT::name, WarpsN);
    return Biased ? biased_row(name) : name;
  }
  static plan::RowFacts facts() {
    plan::RowFacts facts =
        kernels::step_facts<FewRow>("dense_few", Biased ? "biased" : "decode", FormatT::name);
    facts.norms_rows = std::is_same_v<PrologueT, NormedRows>;
    facts.m = 16 * TilesN;
    facts.n = kTokens;
    facts.k = moe::kSegmentColumns;
    facts.stages = ring_bytes / stage_bytes;
    const int ring = static_cast<int>(sizeof(Ring<FewRow>)),
              sums = static_cast<int>(sizeof(Storage::partial) + sizeof(Storage::total));
    facts.parts = {{"weights", ring}, {"sums", sums}, {"tokens", facts.total_bytes - ring - sums}};
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const DenseParams& params) {
    dense_few<FewRow>(cta, params);
  }
};

// Units of 16 rows whose weights come straight to registers: K of at most a segment a warp.
template <class ArchT, class FormatT, class PrologueT, bool IsOfPair = false, bool Biased = false>
struct NearRow {
  using Arch = ArchT;
  using Format = FormatT;
  using Prologue = PrologueT;
  using Params = DenseParams;
  static constexpr int tiles = 1;
  static constexpr int warps = 8;
  static constexpr int threads = 32 * warps;
  static constexpr int blocks_per_sm = 1;
  static constexpr int register_blocks = std::is_base_of_v<plan::Sm90, ArchT> ? 2 : 1;  // as above
  static constexpr bool is_of_pair = IsOfPair;
  static constexpr bool is_biased = Biased;
  static constexpr int copy_bytes = record::kRecordBytes<FormatT> / 2;  // of a record
  static constexpr int columns_max = warps * moe::kSegmentColumns;
  using Storage = NearStorage<NearRow>;
  // Normed rows of every width it takes.
  static_assert(sizeof(Storage::tokens) >= kTokens * row_bytes(columns_max));

  static constexpr int units_of(int strips) { return 2 * strips; }
  static FOURFOLD_DEVICE int units(const DenseParams& params) { return units_of(params.strips); }
  static constexpr const char* products = "mma";
  static std::string name() {
    const std::string name = format("dense_near 16x{}x{} {} {} w{}", kTokens, moe::kSegmentColumns,
                                    PrologueT::name, FormatT::name, warps);
    return Biased ? biased_row(name) : name;
  }
  static plan::RowFacts facts() {
    plan::RowFacts facts =
        kernels::step_facts<NearRow>("dense_near", Biased ? "biased" : "decode", FormatT::name);
    facts.norms_rows = PrologueT::norms;
    facts.m = 16;
    facts.n = kTokens;
    facts.k = moe::kSegmentColumns;
    facts.parts = {{"tokens", static_cast<int>(sizeof(Storage::tokens))},
                   {"sums", facts.total_bytes - static_cast<int>(sizeof(Storage::tokens))}};
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const DenseParams& params) {
    dense_near<NearRow>(cta, params);
  }
};

// The two rows that differ in where their tokens come from.
template <class Arch, class Format, int Tiles, int Warps, int Records>
struct RowTypes {
  template <class Prologue>
  using With = FewRow<Arch, Format, Prologue, Tiles, Warps, Records>;
};

// What the forms for more tokens have in common.
//
// Tokens        of a block, at most; the shared memory they leave is the ring
// TokenColumns  of a token that are there at a time
// The others as above.
template <class ArchT, class FormatT, int TokensN, int TokenColumns, int TilesN, int RecordsN>
struct ManyForm {
  using Arch = ArchT;
  using Format = FormatT;
  using Params = ManyParams;
  static constexpr int n = TokensN;
  static constexpr int groups = TokensN / kTokens;
  static constexpr int tiles = TilesN;
  static constexpr int warps = 8;
  static constexpr int threads = 32 * warps;
  static constexpr int blocks_per_sm = 1;
  static constexpr int stage_records = RecordsN;
  static constexpr int copy_bytes = TilesN == 2 ? record::kRecordBytes<FormatT> : FormatT::tile_bytes;
  static constexpr int stage_bytes = RecordsN * copy_bytes;
  static constexpr int ring_bytes_with(int token_bytes) {
    return (ArchT::smem_bytes_per_block - token_bytes - device::kBarrierBytes) / stage_bytes * stage_bytes;
  }
  // Of L2 beyond the ring: together what covers the latency of the memory twice.
  static constexpr int kWantedBytes = 96 * 1024;
  static constexpr int stages_beyond(int ring) {
    return kWantedBytes > ring ? (kWantedBytes - ring) / stage_bytes : 0;
  }
  static constexpr int token_row_bytes = static_cast<int>(sizeof(std::uint16_t)) * TokenColumns;
  static_assert(TokensN % 16 == 0 && kSegmentRecords % RecordsN == 0);
  static_assert(TilesN == 2 || (TilesN == 1 && RecordsN == 1 && !record::kHasBlockScales<FormatT>));

  static constexpr int units_of(int strips) { return TilesN == 2 ? strips : 2 * strips; }
  static FOURFOLD_DEVICE int units(const DenseParams& params) { return units_of(params.strips); }
  static FOURFOLD_DEVICE int strip_of(int unit) { return TilesN == 2 ? unit : unit >> 1; }
  static FOURFOLD_DEVICE int tile_of(int unit) { return TilesN == 2 ? 0 : unit & 1; }
  static constexpr const char* products = "mma";
  template <class Row>
  static std::string name_of(const char* kernel) {
    return format("{} {}x{}x{} {}", kernel, 16 * TilesN, TokensN, moe::kSegmentColumns, FormatT::name);
  }
  template <class Row>
  static plan::RowFacts facts_of(const char* kernel) {
    plan::RowFacts facts = kernels::step_facts<Row>(kernel, "decode", FormatT::name);
    facts.m = 16 * TilesN;
    facts.n = TokensN;
    facts.k = moe::kSegmentColumns;
    facts.stages = Row::stages;
    const int ring = static_cast<int>(sizeof(Ring<Row>));
    facts.parts = {{"weights", ring}, {"tokens", facts.total_bytes - ring}};
    return facts;
  }
};

template <class ArchT, class FormatT, int TokensN, int TilesN, int RecordsN>
struct ManyRow : ManyForm<ArchT, FormatT, TokensN, moe::kSegmentColumns, TilesN, RecordsN> {
  using Form = ManyForm<ArchT, FormatT, TokensN, moe::kSegmentColumns, TilesN, RecordsN>;
  // As above, where half the registers hold the sums.
  static constexpr int register_blocks =
      std::is_base_of_v<plan::Sm90, ArchT> && TilesN * Form::groups <= 8 ? 2 : 1;
  using Tokens = unsigned char[TokensN * Form::token_row_bytes];
  static constexpr int ring_bytes = Form::ring_bytes_with(static_cast<int>(sizeof(Tokens)));
  static constexpr int stages = ring_bytes / Form::stage_bytes;
  static constexpr int stages_ahead = Form::stages_beyond(ring_bytes);
  static_assert(stages >= Form::warps);
  // K of one segment; sums of more tokens go through memory, for want of registers.
  static constexpr bool finishes_in_registers = TokensN <= 16;
  using Storage = ManyStorage<ManyRow>;
  static std::string name() { return Form::template name_of<ManyRow>("dense_many"); }
  static plan::RowFacts facts() { return Form::template facts_of<ManyRow>("dense_many"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const ManyParams& params) {
    dense_many<ManyRow>(cta, params);
  }
};

template <class ArchT, class FormatT, int TokensN>
struct TallRow : ManyForm<ArchT, FormatT, TokensN, record::kColumns, 2, 1> {
  using Form = ManyForm<ArchT, FormatT, TokensN, record::kColumns, 2, 1>;
  using Panels = unsigned char[kPanels][TokensN * Form::token_row_bytes];
  static constexpr int ring_bytes = Form::ring_bytes_with(static_cast<int>(sizeof(Panels)));
  static constexpr int stages = ring_bytes / Form::stage_bytes;
  static constexpr int stages_ahead = Form::stages_beyond(ring_bytes);
  static_assert(stages >= Form::warps);
  using Storage = TallStorage<TallRow>;
  static std::string name() { return Form::template name_of<TallRow>("dense_tall"); }
  static plan::RowFacts facts() { return Form::template facts_of<TallRow>("dense_tall"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const ManyParams& params) {
    dense_tall<TallRow>(cta, params);
  }
};

template <class ArchT, class FormatT>
struct SumRow {
  using Arch = ArchT;
  using Format = FormatT;
  using Params = ManyParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = 32 * kSumWarps;
  static constexpr int blocks_per_sm = 3;
  static std::string name() { return format("dense_sum {}", FormatT::name); }
  static plan::RowFacts facts() { return kernels::step_facts<SumRow>("dense_sum", "decode", FormatT::name); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const ManyParams& params) {
    dense_sum<FormatT>(cta, params);
  }
};

template <class ArchT, class FormatT>
struct SumNormRow {
  using Arch = ArchT;
  using Format = FormatT;
  using Params = ManyParams;
  using Storage = NormStorage;
  static constexpr int threads = 32 * kNormWarps;
  static constexpr int blocks_per_sm = 1;
  static std::string name() { return sum_norm_row(FormatT::name); }
  static plan::RowFacts facts() {
    return kernels::step_facts<SumNormRow>("dense_sum_norm", "decode", FormatT::name);
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const ManyParams& params) {
    dense_sum_norm<FormatT>(cta, params);
  }
};

// Both for as many tokens.
template <class FirstT, class SecondT>
struct ManyPairRow {
  using First = FirstT;
  using Second = SecondT;
  using Arch = typename Second::Arch;
  using Format = typename Second::Format;
  using Params = ManyPairParams;
  using Storage = std::conditional_t<(sizeof(typename First::Storage) > sizeof(typename Second::Storage)),
                                     typename First::Storage, typename Second::Storage>;
  static constexpr int n = Second::n;
  static constexpr int groups = Second::groups;
  static constexpr int threads = Second::threads;
  static constexpr int blocks_per_sm = Second::blocks_per_sm;
  static constexpr int register_blocks = Second::register_blocks;
  static_assert(First::n == n && First::threads == threads && First::register_blocks == register_blocks);
  static constexpr const char* products = "mma";
  static std::string name() {
    return format("dense_many_pair {}x{} {} {}", n, moe::kSegmentColumns, First::Format::name, Format::name);
  }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<ManyPairRow>("dense_many_pair", "decode", Format::name);
    facts.m = 16 * Second::tiles;
    facts.n = n;
    facts.k = moe::kSegmentColumns;
    facts.stages = Second::stages;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const ManyPairParams& params) {
    dense_many_pair<First, Second>(cta, params);
  }
};

template <class ArchT, class FirstFormat, class FormatT>
struct SumPairRow {
  using Arch = ArchT;
  using Format = FormatT;
  using Params = ManyPairParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = 32 * kSumWarps;
  // SM120's code for three would spill.
  static constexpr int blocks_per_sm = std::is_base_of_v<plan::Sm90, ArchT> ? 3 : 2;
  static std::string name() { return format("dense_sum_pair {} {}", FirstFormat::name, FormatT::name); }
  static plan::RowFacts facts() {
    return kernels::step_facts<SumPairRow>("dense_sum_pair", "decode", FormatT::name);
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const ManyPairParams& params) {
    dense_sum_pair<FirstFormat, FormatT>(cta, params);
  }
};

template <class ArchT>
struct NormRow {
  using Arch = ArchT;
  using Params = NormParams;
  using Storage = NormStorage;
  static constexpr int threads = 32 * kNormWarps;
  static constexpr int blocks_per_sm = 2;
  static std::string name() { return kNormRow; }
  static plan::RowFacts facts() { return kernels::step_facts<NormRow>(kNormRow, "any"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const NormParams& params) {
    norm_rows(cta, params);
  }
};

template <class ArchT>
struct NormPromptRow {
  using Arch = ArchT;
  using Params = NormPromptParams;
  using Storage = NormPromptStorage;
  static constexpr int threads = 32 * kNormWarps;
  static constexpr int blocks_per_sm = 5;
  static std::string name() { return kNormPromptRow; }
  static plan::RowFacts facts() { return kernels::step_facts<NormPromptRow>(kNormPromptRow, "prefill"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    norm_prompt(cta, params);
  }
};

template <class ArchT>
struct NormFp4Row {
  using Arch = ArchT;
  using Params = NormFp4Params;
  using Storage = NormStorage;
  static constexpr int threads = 32 * kNormWarps;
  static constexpr int blocks_per_sm = 4;
  static std::string name() { return kNormFp4Row; }
  static plan::RowFacts facts() { return kernels::step_facts<NormFp4Row>(kNormFp4Row, "prefill", "nvfp4"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    norm_fp4(cta, params);
  }
};

template <class ArchT>
struct QuantizeRowsRow {
  using Arch = ArchT;
  using Params = QuantizeRowsParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = 32 * kQuantizeWarps;
  static constexpr int blocks_per_sm = 4;
  static std::string name() { return kQuantizeRowsRow; }
  static plan::RowFacts facts() {
    return kernels::step_facts<QuantizeRowsRow>(kQuantizeRowsRow, "prefill", "fp8");
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    quantize_rows(cta, params);
  }
};

// clang-format off
template <class Arch, class Prologue, bool Biased = false>
using FewRowsOf = moe::RowList<
    //                                      tiles warps records
    FewRow<Arch, record::Bf16Format, Prologue, 1,  8,   1, false, Biased>,
    FewRow<Arch, record::Bf16Format, Prologue, 2,  4,   1, false, Biased>,
    FewRow<Arch, record::Fp8Format,  Prologue, 2,  8,   1, false, Biased>,
    FewRow<Arch, record::Fp8Format,  Prologue, 2,  4,   2, false, Biased>,
    FewRow<Arch, record::Nvfp4,      Prologue, 2,  8,   2, false, Biased>,
    FewRow<Arch, record::Nvfp4,      Prologue, 2,  4,   4, false, Biased>,
    FewRow<Arch, record::Nvfp4,      Prologue, 2, 16,   1, false, Biased>>;
template <class Arch, bool Biased = false>
using NearRows = moe::RowList<NearRow<Arch, record::Fp8Format, GivenRows, false, Biased>,
                              NearRow<Arch, record::Nvfp4,     GivenRows, false, Biased>>;
template <class Arch, class Format, int Tiles, int Records>
using PartOfPair = FewRow<Arch, Format, NormedRows, Tiles, 8, Records, true>;
template <class Arch, class Format, int Records>
using PairOf = PairRow<PartOfPair<Arch, record::Bf16Format, 1, 1>, PartOfPair<Arch, Format, 2, Records>>;
template <class Arch>
using NearPair =
    PairRow<PartOfPair<Arch, record::Bf16Format, 1, 1>, NearRow<Arch, record::Nvfp4, NormedRows, true>>;
template <class Arch>
using PairRows =
    moe::RowList<PairOf<Arch, record::Fp8Format, 1>, PairOf<Arch, record::Nvfp4, 2>, NearPair<Arch>>;
// The rows of eight warps that choose_dense() takes for two and more given tokens.
template <class Arch, bool AnyRule>
using TableRowsOf = moe::RowList<DenseTableRow<FewRow<Arch, record::Bf16Format, GivenRows, 1, 8, 1>, AnyRule>,
                                 DenseTableRow<NearRow<Arch, record::Fp8Format, GivenRows>, AnyRule>,
                                 DenseTableRow<NearRow<Arch, record::Nvfp4, GivenRows>, AnyRule>>;
template <class Arch>
using TableRows = moe::Join<TableRowsOf<Arch, false>, TableRowsOf<Arch, true>>;
// Those that choose_many() takes for nine to sixteen.
template <class Arch, bool AnyRule>
using ManyTableRowsOf = moe::RowList<ManyTableRow<ManyRow<Arch, record::Bf16Format, 16, 1, 1>, AnyRule>,
                                     ManyTableRow<ManyRow<Arch, record::Fp8Format, 16, 2, 1>, AnyRule>,
                                     ManyTableRow<ManyRow<Arch, record::Nvfp4, 16, 2, 2>, AnyRule>>;
template <class Arch>
using ManyTableRows = moe::Join<ManyTableRowsOf<Arch, false>, ManyTableRowsOf<Arch, true>>;
// clang-format on

// clang-format off
template <class Arch>
using ManyRows = moe::RowList<
    //                                tokens tiles records
    ManyRow<Arch, record::Bf16Format,   16,   1,    1>,
    ManyRow<Arch, record::Bf16Format,   32,   1,    1>,
    ManyRow<Arch, record::Bf16Format,   48,   2,    1>,
    ManyRow<Arch, record::Bf16Format,   64,   2,    1>,
    ManyRow<Arch, record::Fp8Format,    16,   2,    1>,
    ManyRow<Arch, record::Fp8Format,    32,   2,    1>,
    ManyRow<Arch, record::Fp8Format,    48,   2,    1>,
    ManyRow<Arch, record::Fp8Format,    64,   2,    1>,
    ManyRow<Arch, record::Nvfp4,        16,   2,    2>,
    ManyRow<Arch, record::Nvfp4,        32,   2,    2>,
    ManyRow<Arch, record::Nvfp4,        48,   2,    1>,
    ManyRow<Arch, record::Nvfp4,        64,   2,    1>>;
// A bf16 matrix and one of another format, each as it is taken alone.
template <class Arch, class Format, int Tokens, int Records>
using ManyPairOf = ManyPairRow<ManyRow<Arch, record::Bf16Format, Tokens, Tokens <= 32 ? 1 : 2, 1>,
                               ManyRow<Arch, Format, Tokens, 2, Records>>;
template <class Arch>
using ManyPairRows = moe::RowList<
    //                            tokens records
    ManyPairOf<Arch, record::Fp8Format,   16,    1>,
    ManyPairOf<Arch, record::Fp8Format,   32,    1>,
    ManyPairOf<Arch, record::Fp8Format,   48,    1>,
    ManyPairOf<Arch, record::Fp8Format,   64,    1>,
    ManyPairOf<Arch, record::Nvfp4,       16,    2>,
    ManyPairOf<Arch, record::Nvfp4,       32,    2>,
    ManyPairOf<Arch, record::Nvfp4,       48,    1>,
    ManyPairOf<Arch, record::Nvfp4,       64,    1>>;
template <class Arch>
using TallRows = moe::RowList<
    //                                tokens
    TallRow<Arch, record::Bf16Format, 16>,
    TallRow<Arch, record::Bf16Format, 32>,
    TallRow<Arch, record::Bf16Format, 64>,
    TallRow<Arch, record::Fp8Format,  16>,
    TallRow<Arch, record::Fp8Format,  32>,
    TallRow<Arch, record::Fp8Format,  64>,
    TallRow<Arch, record::Nvfp4,      16>,
    TallRow<Arch, record::Nvfp4,      32>,
    TallRow<Arch, record::Nvfp4,      64>>;
// clang-format on
template <class Arch>
using SumRows = moe::RowList<SumRow<Arch, record::Bf16Format>, SumRow<Arch, record::Fp8Format>,
                             SumRow<Arch, record::Nvfp4>, SumNormRow<Arch, record::Bf16Format>,
                             SumNormRow<Arch, record::Fp8Format>, SumNormRow<Arch, record::Nvfp4>,
                             SumPairRow<Arch, record::Bf16Format, record::Fp8Format>,
                             SumPairRow<Arch, record::Bf16Format, record::Nvfp4>>;

template <class Arch>
using FewRows =
    moe::Join<FewRowsOf<Arch, GivenRows>, FewRowsOf<Arch, NormedRows>, NearRows<Arch>, PairRows<Arch>>;
template <class Arch>
using BiasedRows =
    moe::Join<FewRowsOf<Arch, GivenRows, true>, FewRowsOf<Arch, NormedRows, true>, NearRows<Arch, true>>;
template <class Chip, class Arch = typename Chip::Shared>
using Rows =
    moe::Join<FewRows<Arch>, TableRows<Arch>, ManyTableRows<Arch>, ManyRows<Arch>, ManyPairRows<Arch>,
              TallRows<Arch>, SumRows<Arch>,
              moe::RowList<NormRow<Arch>, NormPromptRow<Arch>, NormFp4Row<Arch>, QuantizeRowsRow<Arch>>,
              BiasedRows<Arch>>;

}  // namespace fourfold::dense
