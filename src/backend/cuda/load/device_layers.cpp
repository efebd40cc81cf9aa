#include "backend/cuda/load/device_layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <numbers>

#include "backend/window_pages.h"
#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"
#include "kernels/record/record.h"
#include "kernels/step/step_tables.h"

namespace fourfold::backend::cuda {
namespace {

class ModelLoader {
 public:
  ModelLoader(const Program& program, const Capacity& capacity, WeightLoader& loader, kernels::Arena& arena,
              kernels::Memory& memory, const LoadWatch& watch)
      : program_(program),
        capacity_(capacity),
        loader_(loader),
        arena_(arena),
        memory_(memory),
        watch_(watch) {}

  DeviceModel load(const Layers& layers) {
    DeviceModel model;
    model.part = program_.part;
    model.position_count = position_count();
    model.hidden = static_cast<int>(program_.hidden_size);
    if (model.hidden % record::kColumns != 0)
      fail_with_hint(Code::unsupported_op, "Run it with --backend cpu.",
                     "hidden_size {} of config.json: the GPU backend has kernels for multiples of {}",
                     model.hidden, record::kColumns);
    model.embedding = loader_.table(layers.main.embedding, "embedding");
    loaded("embedding");
    for (const Layer& layer : layers.main.layers) model.layers.push_back(load(layer));
    model.head = head(layers.main.final_norm, layers.main.head);
    loaded("head");
    model.keeps_hidden = layers.main.keeps_hidden;
    if (!layers.draft) return model;
    const DraftPass& pass = *layers.draft;
    DeviceDraft& draft = model.draft.emplace();
    in_draft_ = true;
    draft.embedding = loader_.table(pass.embedding, "embedding");
    draft.embedding_norm = norm(pass.embedding_norm);
    draft.hidden_norm = norm(pass.hidden_norm);
    draft.combine = loader_.dense(std::array{Piece{pass.combine}});
    draft.layer = load(pass.layer);
    draft.head = model.head;
    draft.head.norm = norm(pass.final_norm);
    if (!(pass.head == layers.main.head)) draft.head = head(pass.final_norm, pass.head);
    loaded("head");
    return model;
  }

 private:
  void loaded(std::string_view kind) const {
    if (watch_) watch_(in_draft_ ? "MTP layer" : kind);
  }
  static void require_head(const std::string& name, std::string_view field, std::int64_t head_dim,
                           std::initializer_list<std::int64_t> known) {
    if (std::find(known.begin(), known.end(), head_dim) != known.end()) return;
    std::string list;
    for (const std::int64_t width : known) list += format("{}{}", list.empty() ? "" : ", ", width);
    fail_with_hint(Code::unsupported_op, "Run it with --backend cpu.",
                   "{}: heads of {} columns ({} of config.json); the GPU backend has kernels for heads of {}",
                   name, head_dim, field, list);
  }
  // As held: with zeros up to a whole record.
  int neurons(MatrixId gate) const {
    return static_cast<int>((program_.matrix(gate).matrix->rows + record::kColumns - 1) / record::kColumns *
                            record::kColumns);
  }
  DeviceNorm norm(const Norm& from) {
    return {loader_.norm(from), static_cast<float>(from.epsilon),
            static_cast<int>(program_.vector(from.weight).values.size())};
  }
  DeviceHead head(const Norm& from, MatrixId matrix) {
    DeviceHead out{.norm = norm(from),
                   .matrix = loader_.dense(std::array{Piece{matrix}}),
                   .vocab = static_cast<int>(program_.vocab_size),
                   .columns = static_cast<int>(program_.matrix(matrix).matrix->rows)};
    out.logits_stride = program_.part.count == 1 ? out.matrix.width : (out.vocab + 31) / 32 * 32;
    return out;
  }

  DeviceLayer load(const Layer& layer) {
    DeviceLayer out;
    std::visit([&](const auto& mixer) { out.mixer = load(mixer); }, layer.mixer);
    std::visit([&](const auto& mlp) { out.mlp = load(mlp); }, layer.mlp);
    return out;
  }

  DeviceDelta load(const DeltaMixer& mixer) {
    const DeltaState& state = program_.delta_state(mixer.state);
    if (state.key_head_dim != state.value_head_dim || state.conv_taps != delta::kTaps)
      fail(Code::unsupported_op,
           "{}: heads of {} and {} columns, {} taps; the GPU backend needs equal heads and {} taps",
           state.name, state.key_head_dim, state.value_head_dim, state.conv_taps, delta::kTaps);
    require_head(state.name, "linear_key_head_dim", state.key_head_dim, {32, 64, 128});
    DeviceDelta out;
    out.norm = norm(mixer.norm);
    out.in =
        loader_.dense(std::array{Piece{mixer.qkv}, Piece{mixer.gate}, Piece{mixer.beta}, Piece{mixer.decay}});
    out.weights = {.taps = loader_.vector(mixer.taps),
                   .a_log = loader_.vector(mixer.a_log),
                   .dt_bias = loader_.vector(mixer.dt_bias),
                   .norm_weight = loader_.norm(mixer.head_norm),
                   .epsilon = static_cast<float>(mixer.head_norm.epsilon),
                   .gate_is_sigmoid = mixer.gate_kind == GateKind::sigmoid};
    out.layout =
        delta::layout_of(static_cast<int>(state.key_head_count), static_cast<int>(state.value_head_count),
                         static_cast<int>(state.key_head_dim));
    out.state = reinterpret_cast<float*>(arena_.take<unsigned char>(
        static_cast<std::size_t>(out.layout.slot_bytes() * capacity_.state_slot_count), "delta state"));
    memory_.clear(out.state, static_cast<std::size_t>(out.layout.slot_bytes() * capacity_.state_slot_count));
    out.out = loader_.dense(std::array{Piece{mixer.output}});
    out.out_columns = out.out.matrices.front().columns();
    loaded("DeltaNet");
    return out;
  }

  const float* optional(OptionalVectorId id) { return id.is_there() ? loader_.vector(id) : nullptr; }
  void load_head_norms(const AttentionMixer& mixer, DeviceAttention& out) {
    if (mixer.query_norm) {
      out.query_weight = loader_.norm(*mixer.query_norm);
      out.key_weight = loader_.norm(*mixer.key_norm);
      out.epsilon = static_cast<float>(mixer.query_norm->epsilon);
    }
    if (!mixer.query_row_norm) return;
    out.norms_rows = true;
    out.epsilon = static_cast<float>(mixer.query_row_norm->norm.epsilon);
    const auto load_row = [&](const RowNorm& row, int& columns) {
      columns = static_cast<int>(program_.vector(row.norm.weight).values.size());
      return loader_.norm(row.norm) + row.first;
    };
    out.query_weight = load_row(*mixer.query_row_norm, out.query_columns);
    out.key_weight = load_row(*mixer.key_row_norm, out.key_columns);
  }

  DeviceAttention load(const AttentionMixer& mixer) {
    const KvCache& cache = program_.kv_cache(mixer.cache);
    require_head(cache.name, "head_dim", cache.head_dim, {64, 128, 256});
    if (mixer.is_windowed())
      require_head(cache.name + " with a window or sinks", "head_dim", cache.head_dim, {64});
    DeviceAttention out;
    out.norm = norm(mixer.norm);
    out.in = loader_.dense(std::array{Piece{mixer.query}, Piece{mixer.key}, Piece{mixer.value}});
    load_head_norms(mixer, out);
    out.query_bias = optional(mixer.query_bias);
    out.key_bias = optional(mixer.key_bias);
    out.value_bias = optional(mixer.value_bias);
    out.rotary = rotary(mixer.rope);
    out.rotary_pairs = static_cast<int>(program_.rope(mixer.rope).inverse_frequency.size());
    out.kv = cache.format;
    if (out.kv == KvFormat::f32)
      fail_with_hint(Code::unsupported_op, "Run it with --kv bf16 or fp8.",
                     "{}: keys and values in f32; the GPU backend has pages of bf16 and fp8", cache.name);
    out.has_window_pages = cache.window != 0;
    const std::int64_t page_count =
        out.has_window_pages ? WindowPages::count_of(program_, capacity_) : capacity_.page_count;
    const auto bytes = static_cast<std::size_t>(page_count * step::kPageTokens * cache.columns() *
                                                element_bytes(cache.format));
    const char* what = out.has_window_pages ? "KV pages of windows" : "KV pages";
    out.keys = arena_.take<unsigned char>(bytes, what);
    out.values = arena_.take<unsigned char>(bytes, what);
    for (unsigned char* pages : {out.keys, out.values}) memory_.clear(pages, bytes);
    out.heads = static_cast<int>(mixer.head_count);
    out.kv_heads = static_cast<int>(cache.kv_head_count);
    out.head_dim = static_cast<int>(mixer.head_dim);
    out.is_gated = mixer.is_gated;
    out.scale = static_cast<float>(mixer.scale);
    out.is_windowed = mixer.is_windowed();
    out.window = static_cast<int>(mixer.window);
    out.sinks = optional(mixer.sinks);
    out.out = loader_.dense(std::array{Piece{.matrix = mixer.output, .bias = mixer.output_bias}});
    loaded("attention");
    return out;
  }

  // The latents there are pages for; a narrower one is padded.
  int page_latent(const KvCache& cache) const {
    for (const int width : {64, 256, 512})
      if (cache.latent_dim <= width) return width;
    fail_with_hint(Code::unsupported_op, "Run it with --backend cpu.",
                   "{}: a latent of {} columns; the GPU backend has pages for at most 512", cache.name,
                   cache.latent_dim);
  }
  // What the kernels of latent attention take to be so.
  void require_latent_sizes(const LatentMixer& mixer, const KvCache& cache) const {
    const auto refuse = [&](std::string_view what) {
      fail_with_hint(Code::unsupported_op, "Run it with --backend cpu.", "{}: {}", cache.name, what);
    };
    if (cache.format != KvFormat::bf16)
      fail_with_hint(Code::unsupported_op, "Run it with --kv bf16.",
                     "{}: a latent cache in {}; the GPU backend has latent pages of bf16", cache.name,
                     format_name(cache.format));
    for (const MatrixId id : {mixer.key_up, mixer.value_up})
      if (program_.matrix(id).input == InputFormat::f32)
        fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                       "{}: the GPU backend multiplies 16-bit activations, not f32",
                       program_.matrix(id).matrix->name);
    const std::int64_t turned = cache.head_dim - cache.latent_dim;
    const std::int64_t plain = program_.matrix(mixer.key_up).matrix->rows / mixer.head_count;
    const std::int64_t value = program_.matrix(mixer.value_up).matrix->rows / mixer.head_count;
    if (turned > mla::kPanelColumns)
      refuse(
          format("{} turned columns; the GPU backend has pages for at most {}", turned, mla::kPanelColumns));
    if (cache.latent_dim % 16 != 0 || plain % 8 != 0 || value % 16 != 0)
      refuse(
          format("a latent of {} columns, heads of {} and {}; the GPU backend needs multiples of 16, 8 "
                 "and 16",
                 cache.latent_dim, plain, value));
    if (mixer.query_down && program_.matrix(*mixer.query_down).matrix->rows % 8 != 0)
      refuse(format("queries from {} columns; the GPU backend needs a multiple of 8",
                    program_.matrix(*mixer.query_down).matrix->rows));
  }
  // The scale of every growth_positions positions, times log2(e), as the kernel multiplies it.
  const float* grown_scale(const Attention& attend) {
    const std::int64_t positions = position_count();
    std::vector<float> scales;
    for (std::int64_t position = 0; position < positions; position += attend.growth_positions)
      scales.push_back(static_cast<float>(attend.scale * attend.growth_at(position) * std::numbers::log2e));
    return arena_.upload(scales, "scales");
  }

  DeviceLatent load(const LatentMixer& mixer) {
    const KvCache& cache = program_.kv_cache(mixer.cache);
    require_latent_sizes(mixer, cache);
    DeviceLatent out;
    out.norm = norm(mixer.norm);
    const Piece plain{mixer.plain_query}, turned{mixer.turned_query}, latent{mixer.latent},
        key{mixer.turned_key};
    if (mixer.query_down) {
      out.in = loader_.dense(std::array{Piece{*mixer.query_down}, latent, key});
      out.query = loader_.dense(std::array{plain, turned});
      out.query_norm = norm(mixer.query_norm);
    } else {
      out.in = loader_.dense(std::array{plain, turned, latent, key});
    }
    const DenseGroup& queries = mixer.query_down ? out.query : out.in;
    out.plain_column = queries.first_column[0];
    out.turned_column = queries.first_column[1];
    out.latent_column = out.in.first_column[mixer.query_down ? 1 : 2];
    out.key_column = out.in.first_column[mixer.query_down ? 2 : 3];
    out.latent_norm = norm(mixer.latent_norm);
    out.rotary = rotary(mixer.rope);
    out.rotary_pairs = static_cast<int>(program_.rope(mixer.rope).inverse_frequency.size());
    out.page_latent = page_latent(cache);
    const auto bytes = static_cast<std::size_t>(capacity_.page_count * step::kPageTokens *
                                                (out.page_latent + mla::kPanelColumns) * 2);
    out.pages = arena_.take<unsigned char>(bytes, "KV pages");
    memory_.clear(out.pages, bytes);
    out.heads = static_cast<int>(mixer.head_count);
    out.plain_columns = static_cast<int>(program_.matrix(mixer.key_up).matrix->rows) / out.heads;
    out.value_columns = static_cast<int>(program_.matrix(mixer.value_up).matrix->rows) / out.heads;
    out.key_up = loader_.table(mixer.key_up, "matrices of heads");
    out.value_up = loader_.table(mixer.value_up, "matrices of heads");
    out.up_stride = (out.latent_columns() + record::kColumns - 1) / record::kColumns * record::kColumns;
    out.scale = static_cast<float>(mixer.attend.scale);
    out.growth_positions = static_cast<int>(mixer.attend.growth_positions);
    if (out.growth_positions > 0) out.grown_scale = grown_scale(mixer.attend);
    out.out = loader_.dense(std::array{Piece{mixer.output}});
    loaded("attention");
    return out;
  }

  DeviceMoe load(const MoeMlp& mlp) {
    DeviceMoe out;
    out.norm = norm(mlp.norm);
    std::vector<Piece> pieces{{.matrix = mlp.router, .bias = mlp.router_bias}};
    if (mlp.shared_gate) pieces.push_back({*mlp.shared_gate});
    if (mlp.shared) pieces.push_back({mlp.shared->gate, mlp.shared->up, mlp.shared->down});
    out.in = loader_.dense(pieces);
    out.has_shared = mlp.shared.has_value();
    out.has_shared_gate = mlp.shared_gate.has_value();
    if (mlp.shared) {
      out.shared_columns = neurons(mlp.shared->gate);
      out.shared_down = loader_.dense(std::array{Piece{mlp.shared->down}});
    }
    loaded("routers, shared experts");
    if (const ExpertSet& set = program_.expert_set(mlp.set); set.count() != std::ssize(set.experts))
      fail_with_hint(Code::unsupported_op,
                     "Run it with --experts tp; where an expert's columns do not divide, with fewer ranks.",
                     "{}: {} of {} experts are here; the GPU backend needs a part of each", set.name,
                     set.experts.size(), set.count());
    out.experts = loader_.experts(mlp.set);
    loaded("routed experts");
    out.top_k = static_cast<int>(mlp.experts_per_token);
    out.rule = rule_of(mlp, optional(mlp.choice_bias));
    out.clamped = mlp.clamped;
    out.glu_alpha = static_cast<float>(mlp.glu_alpha);
    out.glu_limit = static_cast<float>(mlp.glu_limit);
    return out;
  }

  DeviceMlp load(const DenseMlp& mlp) {
    DeviceMlp out;
    out.norm = norm(mlp.norm);
    out.gate_up = loader_.dense(std::array{Piece{mlp.mlp.gate, mlp.mlp.up, mlp.mlp.down}});
    out.inner = neurons(mlp.mlp.gate);
    out.down = loader_.dense(std::array{Piece{mlp.mlp.down}});
    loaded("dense MLPs");
    return out;
  }

  std::int64_t position_count() const {
    return std::min(program_.position_limit, capacity_.page_count * step::kPageTokens);
  }

  // cos and sin of every position that can be reached, in double and rounded once.
  const float* rotary(RopeId id) {
    const auto index = static_cast<std::size_t>(id.index);
    if (rotary_.size() <= index) rotary_.resize(index + 1);
    if (rotary_[index] != nullptr) return rotary_[index];
    const Rope& rope = program_.rope(id);
    const std::int64_t positions = position_count();
    const std::size_t pairs = rope.inverse_frequency.size();
    const std::size_t count = static_cast<std::size_t>(positions) * pairs * 2;
    auto* to = arena_.take<float>(count, "rotary table");
    rotary_[index] = to;
    if (loader_.sizes_alone()) return to;
    std::vector<float> table(count);
    // On all cores: a quarter of a million positions would hold up the loading of the weights.
    parallel_for(positions, 1024, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t position = begin; position < end; ++position)
        for (std::size_t i = 0; i < pairs; ++i) {
          const double angle = static_cast<double>(position) * rope.inverse_frequency[i];
          float* out = table.data() + 2 * (static_cast<std::size_t>(position) * pairs + i);
          out[0] = static_cast<float>(std::cos(angle) * rope.amplitude);
          out[1] = static_cast<float>(std::sin(angle) * rope.amplitude);
        }
    });
    memory_.write(to, table.data(), count * sizeof(float));
    return to;
  }

  const Program& program_;
  const Capacity& capacity_;
  WeightLoader& loader_;
  kernels::Arena& arena_;
  kernels::Memory& memory_;
  const LoadWatch& watch_;
  bool in_draft_ = false;
  std::vector<const float*> rotary_;  // by RopeId
};

}  // namespace

moe_layer::LayerWeights DeviceMoe::layer_weights() const {
  moe_layer::LayerWeights out;
  out.gate_up = experts.gate_up;
  out.down = experts.down;
  out.gate_scale = experts.gate_scale;
  out.up_scale = experts.up_scale;
  out.down_scale = experts.down_scale;
  out.gate_up_row_scale = experts.gate_up_row_scale;
  out.down_row_scale = experts.down_row_scale;
  out.gate_up_input_scale = experts.gate_up_input_scale;
  out.gate_up_input_inverse = experts.gate_up_input_inverse;
  out.down_input_scale = experts.down_input_scale;
  out.down_input_inverse = experts.down_input_inverse;
  out.gate_up_bias = experts.gate_up_bias;
  out.down_bias = experts.down_bias;
  out.glu_alpha = glu_alpha;
  out.glu_limit = glu_limit;
  return out;
}

DeviceModel load_model(const Layers& layers, const Program& program, const Capacity& capacity,
                       WeightLoader& loader, kernels::Arena& arena, kernels::Memory& memory,
                       const LoadWatch& watch) {
  return ModelLoader(program, capacity, loader, arena, memory, watch).load(layers);
}

}  // namespace fourfold::backend::cuda
