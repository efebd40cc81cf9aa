// The proofs of the DeltaNet kernels: generated rows against the recurrence, prompt rows against the chunk
// form, both in double precision and with derived bounds (kernels/delta/reference.h, prompt_reference.h).
// Steps of several sequences, across the border of a block, and with a sequence that sits out.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/format.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/prompt_reference.h"
#include "kernels/delta/reference.h"
#include "kernels/verify/delta_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using delta::Bounded;
using delta::HostRow;
using delta::HostWeights;
using delta::Layout;

// A sequence's rows in a step; its slot is its index.
struct StepRows {
  int position = 0;
  std::vector<HostRow> rows;  // none: a place without a sequence
};

class DeltaLayer {
 public:
  DeltaLayer(StepRun& run, const Layout& layout, const HostWeights& weights, int slots)
      : run_(run), layout_(layout) {
    weights_.taps = run.upload(weights.taps, "taps");
    weights_.a_log = run.upload(weights.a_log, "a_log");
    weights_.dt_bias = run.upload(weights.dt_bias, "dt_bias");
    weights_.norm_weight = run.upload(weights.norm_weight, "norm weight");
    weights_.epsilon = static_cast<float>(weights.epsilon);
    weights_.gate_is_sigmoid = weights.gate_is_sigmoid ? 1 : 0;
    state_ = run.take<float>(static_cast<std::size_t>(slots) * layout.slot_floats, "state");
  }

  // value_dim columns a row, bf16, sequence after sequence.
  std::vector<std::uint16_t> decode(const std::vector<StepRows>& step) {
    delta::DecodeParams params{};
    params.sequences = run_.upload(places_of(step), "sequences");
    params.sequence_limit = static_cast<std::int32_t>(step.size());
    params.mixed = upload_rows<float>(step);
    params.weights = weights_;
    params.state = state_;
    params.layout = layout_;
    params.out = take_out(step);
    params.out_stride = out_stride();
    run_.launch(delta::decode_row(layout_.head_dim), delta::decode_blocks(params.sequence_limit, layout_),
                params);
    return read_out(step, params.out);
  }

  std::vector<std::uint16_t> prompt(const std::vector<StepRows>& step) {
    std::vector<delta::ChunkPlace> chunks;
    std::vector<delta::PromptPlace> prompts;
    for (const step::SequencePlace& place : places_of(step)) {
      const int count = delta::prompt_chunks(place.position, place.row_count);
      prompts.push_back({static_cast<std::int32_t>(chunks.size()), count, {}});
      for (int i = 0; i < count; ++i) chunks.push_back(delta::chunk_of(place, i));
    }
    chunks.push_back({});  // a place beyond the batch
    delta::PromptParams params{};
    params.chunks = run_.upload(chunks, "chunks");
    params.prompts = run_.upload(prompts, "prompts");
    params.chunk_limit = static_cast<std::int32_t>(chunks.size());
    params.prompt_limit = static_cast<std::int32_t>(prompts.size());
    params.mixed = upload_rows<std::uint16_t>(step);
    params.weights = weights_;
    params.state = state_;
    params.layout = layout_;
    const delta::PromptSizes sizes{params.chunk_limit, row_count(step), layout_};
    params.work =
        delta::workspace_at(run_.take<std::uint8_t>(static_cast<std::size_t>(sizes.bytes()), "work"), sizes);
    params.out = take_out(step);
    params.out_stride = out_stride();
    const auto row = [&](const char* kernel) { return delta::prompt_row(kernel, layout_.head_dim); };
    run_.launch(row(delta::kPrepareKernel), delta::prepare_blocks(params.chunk_limit, layout_), params);
    run_.launch(row(delta::kScanKernel), delta::scan_blocks(params.prompt_limit, layout_), params);
    run_.launch(row(delta::kFinishKernel),
                delta::finish_blocks(params.chunk_limit, params.prompt_limit, layout_), params);
    return read_out(step, params.out);
  }

  float* state() { return state_; }

 private:
  static int row_count(const std::vector<StepRows>& step) {
    int count = 0;
    for (const StepRows& sequence : step) count += static_cast<int>(sequence.rows.size());
    return count;
  }
  static std::vector<step::SequencePlace> places_of(const std::vector<StepRows>& step) {
    std::vector<step::SequencePlace> places;
    std::int32_t first = 0;
    for (const StepRows& sequence : step) {
      const auto rows = static_cast<std::int32_t>(sequence.rows.size());
      places.push_back({first, rows, sequence.position, static_cast<std::int32_t>(places.size()), 0, {}});
      first += rows;
    }
    return places;
  }
  int out_stride() const { return layout_.value_dim + 8; }
  std::uint16_t* take_out(const std::vector<StepRows>& step) {
    return run_.take<std::uint16_t>(static_cast<std::size_t>(row_count(step) * out_stride()), "out");
  }
  std::vector<std::uint16_t> read_out(const std::vector<StepRows>& step, const std::uint16_t* out) {
    std::vector<std::uint16_t> all;
    for (int row = 0; row < row_count(step); ++row) {
      const auto values = run_.written(out + row * out_stride(), static_cast<std::size_t>(layout_.value_dim));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  // z, qkv, decay, beta: not the order of the kernel's arguments; what pads a row would be seen.
  template <class Element>
  delta::MixedRows upload_rows(const std::vector<StepRows>& step) {
    const int stride = (layout_.conv_dim + layout_.value_dim + 2 * layout_.value_heads + 23) / 8 * 8;
    std::vector<Element> values;
    const auto put = [&](float value) {
      if constexpr (std::is_same_v<Element, float>)
        values.push_back(value);
      else
        values.push_back(to_bf16(value).bits);
    };
    for (const StepRows& sequence : step)
      for (const HostRow& row : sequence.rows) {
        const std::size_t end = values.size() + static_cast<std::size_t>(stride);
        for (const auto* part : {&row.z, &row.qkv, &row.decay, &row.beta})
          for (const float value : *part) put(value);
        while (values.size() < end) put(1e30f);
      }
    delta::MixedRows mixed{};
    mixed.rows = run_.upload(values, "projections");
    mixed.stride = stride;
    mixed.z_column = 0;
    mixed.qkv_column = layout_.value_dim;
    mixed.decay_column = mixed.qkv_column + layout_.conv_dim;
    mixed.beta_column = mixed.decay_column + layout_.value_heads;
    return mixed;
  }

  StepRun& run_;
  Layout layout_;
  delta::LayerWeights weights_{};
  float* state_ = nullptr;
};

void compare_near(StepRun& run, double got, const Bounded& want) {
  run.compare_bound(got, want.value, want.error);
}

void compare_out(StepRun& run, const std::vector<std::uint16_t>& got,
                 const std::vector<std::vector<Bounded>>& want) {
  std::size_t at = 0;
  for (const auto& row : want)
    for (const Bounded& value : row) compare_near(run, bf16_value(got[at++]), value);
}

// What the state keeps of the sequence's last row, and its anchor where one was just made.
template <int D>
void compare_state(StepRun& run, DeltaLayer& layer, const Layout& layout, int slot,
                   const delta::Recurrence& model) {
  const int position = model.position() - 1;
  const auto state = delta::slot_of<D>(layer.state(), layout, slot);
  for (int h = 0; h < layout.value_heads; ++h) {
    const auto values = run.written(state.delta(h, position), D);
    const auto keys = run.written(state.key(h / layout.values_per_key, position), D);
    for (int i = 0; i < D; ++i) {
      compare_near(run, values[i], model.delta(h)[i]);
      compare_near(run, keys[i], model.key(h)[i]);
    }
    compare_near(run, run.written(state.decay(h, position), 1)[0], model.decay(h));
    if (position % delta::kBlockRows != delta::kBlockRows - 1) continue;
    const auto anchor = run.written(state.anchor(position / delta::kBlockRows + 1, h), D * D);
    double square = 0;
    for (int i = 0; i < D * D; ++i) {
      const double error = anchor[i] - model.state(h, i / D, i % D);
      square += error * error;
    }
    run.compare_bound(std::sqrt(square), 0.0, model.state_error(h));
  }
}

using Steps = std::vector<std::vector<int>>;  // rows of each sequence in each step

// A sequence's next rows. Generated rows are f32, those of prompts bf16.
std::vector<HostRow> make_rows(const Layout& layout, std::uint64_t seed, int position, int count,
                               bool as_bf16) {
  std::vector<HostRow> rows;
  for (int i = 0; i < count; ++i) rows.push_back(delta::make_row(layout, seed, position + i, as_bf16));
  return rows;
}

template <int D>
void follow_recurrence(StepRun& run, const Layout& layout, const HostWeights& weights, const Steps& steps) {
  const int sequences = static_cast<int>(steps[0].size());
  DeltaLayer layer(run, layout, weights, sequences);
  std::vector<delta::Recurrence> models(static_cast<std::size_t>(sequences),
                                        delta::Recurrence(layout, weights, {}));
  for (const std::vector<int>& counts : steps) {
    std::vector<StepRows> step;
    std::vector<std::vector<Bounded>> want;
    for (int s = 0; s < sequences; ++s) {
      const int position = models[s].position();
      step.push_back({position, make_rows(layout, run.test().seed + s, position, counts[s], false)});
      for (const HostRow& row : step.back().rows) want.push_back(models[s].step(row));
    }
    compare_out(run, layer.decode(step), want);
    for (int s = 0; s < sequences; ++s)
      if (counts[s] > 0) compare_state<D>(run, layer, layout, s, models[s]);
  }
}

// A prompt twice: whole in its slot, and chunk by chunk in another one, where the model follows from the
// state the chunk before has left. Both must have the same bits.
template <int D>
class PromptProof {
 public:
  PromptProof(StepRun& run, const Layout& layout, const HostWeights& weights, int sequences)
      : run_(run),
        layout_(layout),
        layer_(run, layout, weights, 2 * sequences),
        models_(static_cast<std::size_t>(sequences), delta::PromptModel(layout, weights)) {
    // The model in double precision takes a second for a head and a thousand rows: of a large case the first
    // head, the last, and one in between follow it. Bits are compared of all.
    if (!run.test().large) return;
    const int heads = layout.key_heads;
    for (delta::PromptModel& model : models_) model.follow_only({0, run.below(heads), heads - 1});
  }

  void take(const std::vector<int>& counts) {
    std::vector<StepRows> whole;
    std::vector<std::size_t> done(models_.size(), 0);  // rows
    for (std::size_t s = 0; s < models_.size(); ++s) {
      const int position = models_[s].position();
      whole.push_back({position, make_rows(layout_, run_.test().seed + s, position, counts[s], true)});
    }
    const auto outs = layer_.prompt(whole);
    for (bool more = true; more;) {
      std::vector<StepRows> chunks(models_.size());  // places without a sequence
      more = false;
      for (std::size_t s = 0; s < models_.size(); ++s) {
        chunks.push_back(next_chunk(whole[s], done[s]));
        more = more || !chunks.back().rows.empty();
      }
      if (more) take_chunks(chunks, whole, outs, done);
    }
  }
  // What two slots of a sequence keep.
  void compare_slots() {
    for (std::size_t s = 0; s < models_.size(); ++s) {
      const int end = models_[s].position(), from = delta::rows_kept_from(end);
      for (int h = 0; h < layout_.value_heads; ++h) {
        for (int position = from; position < end; ++position) {
          compare_bits_of(
              s, [&](const auto& slot) { return slot.delta(h, position); }, D);
          compare_bits_of(
              s, [&](const auto& slot) { return slot.decay(h, position); }, 1);
          if (h % layout_.values_per_key == 0)
            compare_bits_of(
                s, [&](const auto& slot) { return slot.key(h / layout_.values_per_key, position); }, D);
        }
        for (int block = std::max(1, end / delta::kBlockRows - 1); block <= end / delta::kBlockRows; ++block)
          compare_bits_of(
              s, [&](const auto& slot) { return slot.anchor(block, h); }, D * D);
      }
    }
  }

 private:
  delta::SlotState<D> slot(std::size_t place) {
    return delta::slot_of<D>(layer_.state(), layout_, static_cast<int>(place));
  }
  static StepRows next_chunk(const StepRows& whole, std::size_t done) {
    const int position = whole.position + static_cast<int>(done);
    const auto room = static_cast<std::size_t>(delta::kBlockRows - position % delta::kBlockRows);
    const auto from = whole.rows.begin() + static_cast<std::ptrdiff_t>(done);
    const auto count = static_cast<std::ptrdiff_t>(std::min(room, whole.rows.size() - done));
    return {position, {from, from + count}};
  }
  void take_chunks(const std::vector<StepRows>& chunks, const std::vector<StepRows>& whole,
                   const std::vector<std::uint16_t>& outs, std::vector<std::size_t>& done) {
    const auto got = layer_.prompt(chunks);
    std::size_t at = 0, first_row = 0;
    for (std::size_t s = 0; s < models_.size(); first_row += whole[s].rows.size(), ++s) {
      const auto& rows = chunks[models_.size() + s].rows;
      if (rows.empty()) continue;
      const auto read = [this](const float* from, std::size_t count) { return run_.read(from, count); };
      const auto compare = [this](double actual, const Bounded& want) { compare_near(run_, actual, want); };
      const auto want = models_[s].chunk(rows, delta::settled_by<D>(slot(models_.size() + s), read, compare));
      std::size_t in_whole = (first_row + done[s]) * static_cast<std::size_t>(layout_.value_dim);
      for (const auto& row : want)
        for (int i = 0; i < layout_.value_dim; ++i) {
          if (models_[s].follows(i / D)) compare_near(run_, bf16_value(got[at]), row[i]);
          run_.compare_exact(got[at++], outs[in_whole++]);
        }
      done[s] += rows.size();
    }
  }
  template <class Place>
  void compare_bits_of(std::size_t sequence, Place place, std::size_t count) {
    const auto whole = run_.read<float>(place(slot(sequence)), count);
    const auto chunked = run_.read<float>(place(slot(models_.size() + sequence)), count);
    for (std::size_t i = 0; i < count; ++i) run_.compare_bits(chunked[i], whole[i]);
  }

  StepRun& run_;
  Layout layout_;
  DeltaLayer layer_;
  std::vector<delta::PromptModel> models_;
};

template <int D>
void follow_prompt(StepRun& run, const Layout& layout, const HostWeights& weights, const Steps& steps) {
  PromptProof<D> proof(run, layout, weights, static_cast<int>(steps[0].size()));
  for (const std::vector<int>& counts : steps) proof.take(counts);
  proof.compare_slots();
}

struct DeltaShape {
  Layout layout;
  HostWeights weights;
};
DeltaShape make_shape(StepRun& run, const Steps& steps) {
  const int dim = run.test().row.k, variant = run.test().variant;
  int key_heads = dim == 32 && variant > 0 ? 2 : 1, values_per_key = 2 - variant % 2;
  if (run.test().large) {
    key_heads = run.large_shape().key_heads;
    values_per_key = run.large_shape().values_per_key;
  }
  DeltaShape shape{delta::layout_of(key_heads, key_heads * values_per_key, dim), {}};
  shape.weights = delta::make_weights(shape.layout, run.test().seed);
  shape.weights.gate_is_sigmoid = variant % 2 == 1;
  std::string rows;
  for (const auto& step : steps) {
    rows += rows.empty() ? "" : " then ";
    for (std::size_t s = 0; s < step.size(); ++s) rows += (s ? "+" : "") + std::to_string(step[s]);
  }
  run.result().shape = fourfold::format("heads {}/{} rows {}", key_heads, key_heads * values_per_key, rows);
  return shape;
}

}  // namespace

void prove_delta_decode(StepRun& run) {
  // Up to a block's border, across it with drafts or with a row alone, and on; others sit out or begin in
  // between.
  Steps steps{{61, 2}, {6, 0}, {1, 61}, {1, 1}, {1, 1}};
  if (run.test().variant == 1) steps = {{64, 1}, {64, 8}, {2, 64}, {1, 1}};
  if (run.test().variant > 1)
    steps = {{1 + run.below(64), run.below(9), 3},
             {1 + run.below(8), 1 + run.below(64), 0},
             {run.below(9), 1 + run.below(64), 1}};
  if (run.test().large) steps = {{62, 1, 64, 3, 17, 1, 1, 8}, {4, 8, 1, 64, 1, 2, 1, 8}};
  const DeltaShape shape = make_shape(run, steps);
  switch (run.test().row.k) {
    case 32: return follow_recurrence<32>(run, shape.layout, shape.weights, steps);
    case 64: return follow_recurrence<64>(run, shape.layout, shape.weights, steps);
    case 128: return follow_recurrence<128>(run, shape.layout, shape.weights, steps);
  }
  fail(Code::internal, "no proof for heads of {}", run.test().row.k);
}

void prove_delta_prompt(StepRun& run) {
  // A chunk and a rest beside a sequence that begins; then on inside a block. Then so many chunks at once
  // that the scan fills each of its places again, and again.
  Steps steps{{70, 3}, {20, 0}};
  if (run.test().variant == 1) {
    steps = {{320, 0}, {64, 65}};
    const int chunks = delta::prompt_chunks(0, steps[0][0]), places = run.test().row.stages;
    if (chunks <= 2 * places)
      fail(Code::internal, "{} chunks do not fill each of {} places of {} twice and go on", chunks, places,
           run.test().row.row);
  }
  if (run.test().variant > 1)
    steps = {{1 + run.below(130), run.below(70)}, {1 + run.below(70), 1 + run.below(130)}};
  if (run.test().large) steps = {{2'048, 500, 3}, {200, 64, 130}};
  const DeltaShape shape = make_shape(run, steps);
  switch (run.test().row.k) {
    case 32: return follow_prompt<32>(run, shape.layout, shape.weights, steps);
    case 64: return follow_prompt<64>(run, shape.layout, shape.weights, steps);
    case 128: return follow_prompt<128>(run, shape.layout, shape.weights, steps);
  }
  fail(Code::internal, "no proof for heads of {}", run.test().row.k);
}

}  // namespace fourfold::verify
