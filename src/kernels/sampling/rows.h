// The rows of the sampling kernels; each is compiled for every chip.
#pragma once

#include <string>

#include "kernels/launch/row.h"
#include "kernels/sampling/accept.h"
#include "kernels/sampling/choose.h"
#include "kernels/sampling/gather.h"
#include "kernels/sampling/peaks.h"
#include "kernels/sampling/scores.h"
#include "kernels/sampling/weigh.h"

namespace fourfold::sampling {

template <class A>
struct ScoresRow {
  using Arch = A;
  using Params = ChoiceParams;
  using Storage = NewTokens;
  static constexpr int threads = kHistoryThreads, blocks_per_sm = 1;
  static std::string name() { return kScoresRow; }
  static plan::RowFacts facts() { return kernels::step_facts<ScoresRow>("sampling", "scores", "f32"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    score_tokens(cta, params);
  }
};

template <class A>
struct PeaksRow {
  using Arch = A;
  using Params = ChoiceParams;
  using Storage = PeaksStorage;
  static constexpr int threads = kPartThreads, blocks_per_sm = 8;
  static std::string name() { return kPeaksRow; }
  static plan::RowFacts facts() { return kernels::step_facts<PeaksRow>("sampling", "peaks", "f32"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    find_peaks(cta, params);
  }
};

template <class A>
struct ArgmaxRow {
  using Arch = A;
  using Params = ChoiceParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = 32, blocks_per_sm = 8;
  static std::string name() { return kArgmaxRow; }
  static plan::RowFacts facts() { return kernels::step_facts<ArgmaxRow>("sampling", "argmax", "f32"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    choose_best(cta, params);
  }
};

template <class A>
struct WeighRow {
  using Arch = A;
  using Params = ChoiceParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kPartThreads, blocks_per_sm = 8;
  static std::string name() { return kWeighRow; }
  static plan::RowFacts facts() { return kernels::step_facts<WeighRow>("sampling", "weigh", "f32"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    weigh_groups(cta, params);
  }
};

template <class A>
struct ChooseRow {
  using Arch = A;
  using Params = ChoiceParams;
  using Storage = ChooseStorage;
  static constexpr int threads = kChooseThreads, blocks_per_sm = 1;
  static std::string name() { return kChooseRow; }
  static plan::RowFacts facts() { return kernels::step_facts<ChooseRow>("sampling", "choose", "f32"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    choose(cta, params);
  }
};

template <class A>
struct AcceptRow {
  using Arch = A;
  using Params = AcceptParams;
  using Storage = AcceptStorage;
  static constexpr int threads = kHistoryThreads, blocks_per_sm = 2;
  static std::string name() { return kAcceptRow; }
  static plan::RowFacts facts() { return kernels::step_facts<AcceptRow>("sampling", "accept", "i32"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    accept(cta, params);
  }
};

template <class A>
struct EmbedRow {
  using Arch = A;
  using Params = EmbedParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kCopyThreads, blocks_per_sm = 8;
  static std::string name() { return kEmbedRow; }
  static plan::RowFacts facts() { return kernels::step_facts<EmbedRow>("sampling", "embed"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    embed(cta, params);
  }
};

template <class A>
struct TakeRowsRow {
  using Arch = A;
  using Params = TakeRowsParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kCopyThreads, blocks_per_sm = 8;
  static std::string name() { return kTakeRowsRow; }
  static plan::RowFacts facts() { return kernels::step_facts<TakeRowsRow>("sampling", "take_rows", "bytes"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    take_rows(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Shared>
using Rows = moe::RowList<ScoresRow<Arch>, PeaksRow<Arch>, ArgmaxRow<Arch>, WeighRow<Arch>, ChooseRow<Arch>,
                          AcceptRow<Arch>, EmbedRow<Arch>, TakeRowsRow<Arch>>;

}  // namespace fourfold::sampling
