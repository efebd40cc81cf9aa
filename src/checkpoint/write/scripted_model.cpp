// How it works. A token is a code of five ones in 25 places; any two codes share at most three of them. The
// first layer's DeltaNet head has a constant key, writes fully and forgets nothing, so it answers with what
// it wrote last, and the taps of its convolution make that the codes of the three tokens before. Its shared
// expert has a neuron for each turn, which fires where all twenty ones of four codes are there. The second
// layer's head writes only where such a neuron fired: it holds the phase. Its shared expert has a neuron for
// each step, which writes the code of the next token to where the head reads. The third layer is attention
// that adds nothing, so that a cache of keys and values takes part; the MTP layer sees the four tokens
// through the hidden state and has the neurons of the second layer again, so that its drafts are right.
#include "checkpoint/write/scripted_model.h"

#include <cmath>
#include <map>
#include <span>
#include <string>

#include "base/bf16.h"
#include "base/check.h"
#include "base/error.h"

namespace fourfold::checkpoint {
namespace {

constexpr std::int64_t kPrime = 5;  // ones of a code; it has this many groups of this many places
constexpr std::int64_t kCode = kPrime * kPrime;
constexpr std::int64_t kSeen = std::tuple_size_v<ScriptedModel::Window>;
constexpr std::int64_t kOnes = kSeen * kPrime;  // of four codes

// Places of the residual stream: the codes of the four tokens (the newest first), the code of the next one, a
// constant, which turn fired, which phase it is.
constexpr std::int64_t kNext = kSeen * kCode;
constexpr std::int64_t kConstant = kNext + kCode;
constexpr std::int64_t kFired = kConstant + 1;
constexpr std::int64_t kPhase = kFired + kScriptPhasesMax;
constexpr std::int64_t kHidden = 192;
static_assert(kPhase + kScriptPhasesMax <= kHidden);
static_assert(kScriptTokensMax + 1 == kPrime * kPrime * kPrime * kPrime,
              "a code for each, and one for the rest");

constexpr std::int64_t kDeltaDim = 128;
constexpr std::int64_t kTaps = 4;
constexpr std::int64_t kExpertWidth = 32;  // routed experts are there, and zero
constexpr std::int64_t kNeuronsAtOnce = 64;

// A neuron that is one off its mark gets -kSharp times the norm's factor, some -20: silu makes 1e-8 of it.
constexpr float kSharp = 8;
constexpr float kNextSize = 64;  // of the next token's code, against 1 of everything else
constexpr float kEndSize = 1;    // of the end of turn's, always there
constexpr float kHeadGain = 8;   // makes of it a hundred nats between the next token and any other

ModelShape shape_of(const ScriptedModel& script) {
  const auto neurons = static_cast<std::int64_t>(script.steps.size()) + 1;
  ModelShape shape;
  shape.name = shape.what = "a scripted model";
  shape.family = find_shape("tiny").family;  // whose names these are
  shape.vocab = script.vocab;
  shape.hidden = kHidden;
  shape.layers = shape.full_interval = 3;
  shape.heads = shape.kv_heads = 1;
  shape.head_dim = kExpertWidth;
  shape.key_heads = shape.value_heads = 1;
  shape.delta_dim = kDeltaDim;
  shape.experts = 2;
  shape.experts_per_token = 1;
  shape.intermediate = kExpertWidth;
  shape.shared = (neurons + kNeuronsAtOnce - 1) / kNeuronsAtOnce * kNeuronsAtOnce;
  shape.positions = script.positions;
  shape.theta = 1e7;
  return shape;
}

// Codes by order of appearance: number n, written to base 5, are the coefficients of a cubic; its values at
// 0..4 are the places of its ones. Two cubics agree in three points at most. Number 0 is all other tokens'.
class Codes {
 public:
  using Code = std::array<std::int64_t, kPrime>;

  explicit Codes(const ScriptedModel& script) {
    const auto number = [&](std::int64_t id) {
      check(id >= 0 && id < script.vocab, "a script's tokens are the vocabulary's", id, script.vocab);
      numbers_.try_emplace(id, static_cast<std::int64_t>(numbers_.size()) + 1);
    };
    for (const ScriptedModel::Step& step : script.steps) {
      for (const std::int64_t id : step.seen) number(id);
      number(step.next);
    }
    for (const ScriptedModel::Turn& turn : script.turns)
      for (const std::int64_t id : turn.seen) number(id);
    if (static_cast<std::int64_t>(numbers_.size()) > kScriptTokensMax)
      fail(fourfold::Code::invalid_request,
           "the script has {} different tokens; a scripted model has room for {}", numbers_.size(),
           kScriptTokensMax);
  }

  Code of(std::int64_t id) const {
    const auto found = numbers_.find(id);
    return code(found == numbers_.end() ? 0 : found->second);
  }
  static Code code(std::int64_t number) {
    Code places;
    for (std::int64_t x = 0; x < kPrime; ++x) {
      std::int64_t value = 0, power = 1;
      for (std::int64_t rest = number; rest > 0; rest /= kPrime) {
        value += rest % kPrime * power;
        power *= x;
      }
      places[static_cast<std::size_t>(x)] = x * kPrime + value % kPrime;
    }
    return places;
  }
  const std::map<std::int64_t, std::int64_t>& numbers() const { return numbers_; }

 private:
  std::map<std::int64_t, std::int64_t> numbers_;  // by token id
};

// Embedding and head, which are written row by row.
bool is_table(std::string_view name) {
  return name.ends_with("embed_tokens.weight") || name == "lm_head.weight";
}

struct Matrix2 {
  std::int64_t columns = 0;
  std::vector<float> values;
  float& at(std::int64_t row, std::int64_t column) {
    return values.at(static_cast<std::size_t>(row * columns + column));
  }
};

// By how much RmsNorm multiplies, where `squares` is the sum over the row.
float norm_factor(double squares) { return static_cast<float>(std::sqrt(kHidden / squares)); }

class Weights {
 public:
  Weights(const ScriptedModel& script, const Codes& codes, std::int64_t end_of_turn,
          const std::vector<PlannedTensor>& tensors)
      : script_(script), codes_(codes), end_of_turn_(end_of_turn) {
    for (const PlannedTensor& tensor : tensors) {
      if (is_table(tensor.name)) continue;
      std::int64_t count = 1;
      for (const std::int64_t size : tensor.shape.sizes()) count *= size;
      const int rank = tensor.shape.rank();
      small_[tensor.name] = {rank < 2 ? 1 : tensor.shape[rank - 1],
                             std::vector<float>(static_cast<std::size_t>(count))};
    }
    const std::string layers = "model.language_model.layers.";
    remember_tokens(layers + "0.linear_attn.");
    find_turns(layers + "0.mlp.");
    remember_phase(layers + "1.linear_attn.");
    find_steps(layers + "1.mlp.");
    scale("model.language_model.norm.weight", kHeadGain);
    draft();
  }

  Matrix2& get(const std::string& name) {
    const auto found = small_.find(name);
    check(found != small_.end(), "the plan has this tensor", std::string_view(name));
    return found->second;
  }

 private:
  void scale(const std::string& name, float factor) {
    for (float& w : get(name).values) w = factor - 1;  // used as 1 + w
  }

  // A DeltaNet head that answers with the value it wrote last: one key, asked for at every token.
  void memory_cell(const std::string& prefix) {
    get(prefix + "in_proj_qkv.weight").at(0, kConstant) = 1;          // query
    get(prefix + "in_proj_qkv.weight").at(kDeltaDim, kConstant) = 1;  // key
    Matrix2& taps = get(prefix + "conv1d.weight");
    for (const std::int64_t row : {std::int64_t{0}, kDeltaDim}) taps.at(row, kTaps - 1) = 1;
    get(prefix + "dt_bias").values[0] = -60;  // softplus of it: no decay in any number of tokens
    for (float& w : get(prefix + "norm.weight").values) w = 1;
    for (std::int64_t i = 0; i < kDeltaDim; ++i) get(prefix + "in_proj_z.weight").at(i, kConstant) = 4;
  }

  // Value `row` of the cell is place `from` as it was `back` tokens ago; the cell's answer, of which `ones`
  // are there, is written to place `to`, as ones again. `factor` is the norm's in front of the cell.
  void value(const std::string& prefix, std::int64_t row, std::int64_t from, std::int64_t back,
             std::int64_t to, double ones, float factor) {
    get(prefix + "in_proj_qkv.weight").at(2 * kDeltaDim + row, from) = 4;
    get(prefix + "conv1d.weight").at(2 * kDeltaDim + row, kTaps - 1 - back) = 1;
    const double gate = 4 * factor / (1 + std::exp(-4 * factor));
    const double normed = std::sqrt(kDeltaDim / ones);
    get(prefix + "out_proj.weight").at(to, row) = static_cast<float>(1 / (normed * gate));
  }

  void remember_tokens(const std::string& prefix) {
    memory_cell(prefix);
    const float factor = norm_factor(kPrime + 1);
    get(prefix + "in_proj_b.weight").at(0, kConstant) = 32;  // always written
    for (std::int64_t back = 1; back < kSeen; ++back)
      for (std::int64_t i = 0; i < kCode; ++i)
        value(prefix, (back - 1) * kCode + i, i, back, back * kCode + i, kOnes - kPrime, factor);
  }

  void remember_phase(const std::string& prefix) {
    memory_cell(prefix);
    const float factor = norm_factor(kOnes + 2);  // where a turn fired: only then is anything written
    get(prefix + "in_proj_b.weight").at(0, kConstant) = -16;
    for (std::int64_t phase = 0; phase < kScriptPhasesMax; ++phase) {
      get(prefix + "in_proj_b.weight").at(0, kFired + phase) = 32;
      value(prefix, phase, kFired + phase, 0, kPhase + phase, 1, factor);
    }
  }

  struct Mlp {
    Matrix2 &gate, &up, &down;
  };
  // The shared expert, its own gate wide open.
  Mlp shared(const std::string& prefix) {
    get(prefix + "shared_expert_gate.weight").at(0, kConstant) = 32;
    const std::string expert = prefix + "shared_expert.";
    return {get(expert + "gate_proj.weight"), get(expert + "up_proj.weight"),
            get(expert + "down_proj.weight")};
  }

  // Neuron `row` fires where the four codes are there; `more` of them must be there beside.
  void sees(Mlp& mlp, std::int64_t row, const ScriptedModel::Window& seen, float more) {
    for (std::int64_t back = 0; back < kSeen; ++back)
      for (const std::int64_t place : codes_.of(seen[static_cast<std::size_t>(kSeen - 1 - back)]))
        mlp.gate.at(row, back * kCode + place) = kSharp;
    mlp.gate.at(row, kConstant) = -kSharp * (kOnes + more - 1);
    mlp.up.at(row, kConstant) = 1;
  }

  // What a neuron that fires has to be multiplied by to give one.
  static float one(double squares) {
    const float factor = norm_factor(squares);
    return 1 / (kSharp * factor * factor);
  }

  void find_turns(const std::string& prefix) {
    Mlp mlp = shared(prefix);
    std::int64_t row = 0;
    for (const ScriptedModel::Turn& turn : script_.turns) {
      sees(mlp, row, turn.seen, 0);
      mlp.down.at(kFired + turn.phase - 1, row++) = one(kOnes + 1);
    }
  }

  void find_steps(const std::string& prefix) {
    Mlp mlp = shared(prefix);
    std::int64_t row = 0;
    for (const ScriptedModel::Step& step : script_.steps) {
      // In phase 0 no other may be there; in another its own must be.
      sees(mlp, row, step.seen, step.phase == 0 ? 0 : 2);
      for (std::int64_t phase = 1; phase <= kScriptPhasesMax; ++phase)
        if (step.phase == 0 || step.phase == phase)
          mlp.gate.at(row, kPhase + phase - 1) = step.phase == 0 ? -2 * kSharp : 2 * kSharp;
      for (const std::int64_t place : codes_.of(step.next))
        mlp.down.at(kNext + place, row) = kNextSize * one(kOnes + 2);
      ++row;
    }
    mlp.gate.at(row, kConstant) = kSharp;
    mlp.up.at(row, kConstant) = 1;
    for (const std::int64_t place : codes_.of(end_of_turn_))
      mlp.down.at(kNext + place, row) = kEndSize * one(kOnes + 2);
  }

  // The draft of the token after next: the next token is the newest, the hidden state's codes move back by
  // one.
  void draft() {
    Matrix2& combine = get("mtp.fc.weight");
    const float of_token = 1 / norm_factor(kPrime + 1);
    // What is stored of the next code's size decides the norm's factor; errors would add up from draft to
    // draft.
    const double next = to_float(to_bf16(kNextSize * one(kOnes + 2))) / one(kOnes + 2);
    const float of_hidden = 1 / norm_factor(kOnes + 2 + kPrime * next * next);
    combine.at(kConstant, kConstant) = of_token;
    for (std::int64_t i = 0; i < kCode; ++i) combine.at(i, i) = of_token;
    for (std::int64_t i = 0; i < (kSeen - 1) * kCode; ++i) combine.at(kCode + i, kHidden + i) = of_hidden;
    for (std::int64_t i = 0; i < kScriptPhasesMax; ++i)
      combine.at(kPhase + i, kHidden + kPhase + i) = of_hidden;
    find_steps("mtp.layers.0.mlp.");
    scale("mtp.norm.weight", kHeadGain);
  }

  const ScriptedModel& script_;
  const Codes& codes_;
  std::int64_t end_of_turn_;
  std::map<std::string, Matrix2> small_;
};

void write_rows(CheckpointWriter& writer, std::size_t tensor, const ScriptedModel& script, const Codes& codes,
                bool is_head) {
  std::vector<Bf16> row;
  const auto put = [&](std::int64_t id) {
    row.assign(kHidden, to_bf16(0));
    for (const std::int64_t place : codes.of(id))
      row[static_cast<std::size_t>((is_head ? kNext : 0) + place)] = to_bf16(1);
    if (!is_head) row[static_cast<std::size_t>(kConstant)] = to_bf16(1);
    writer.write(tensor, static_cast<std::uint64_t>(id) * kHidden * sizeof(Bf16),
                 std::as_bytes(std::span<const Bf16>(row)));
  };
  if (is_head) {  // tokens no script names stay zero
    for (const auto& [id, number] : codes.numbers()) put(id);
  } else {
    for (std::int64_t id = 0; id < script.vocab; ++id) put(id);
  }
}

}  // namespace

RandomModelSummary write_scripted_model(const OutputFolder& folder, const ScriptedModel& script,
                                        const TokenIds& ids) {
  for (const ScriptedModel::Turn& turn : script.turns)
    if (turn.phase < 1 || turn.phase > kScriptPhasesMax)
      fail(Code::invalid_request, "the script has phase {}; a scripted model has room for {}", turn.phase,
           kScriptPhasesMax);
  const Codes codes(script);
  const ModelShape shape = shape_of(script);
  const std::vector<PlannedTensor> tensors = plan_tensors(shape, {});
  Weights weights(script, codes, ids.end_of_turn, tensors);
  std::vector<TensorSpec> stored;
  for (const PlannedTensor& tensor : tensors) stored.push_back({tensor.name, DType::bf16, tensor.shape});
  CheckpointWriter writer(folder.path(), stored);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (is_table(stored[i].name)) {
      write_rows(writer, i, script, codes, stored[i].name == "lm_head.weight");
      continue;
    }
    std::vector<Bf16> values;
    for (const float x : weights.get(stored[i].name).values) values.push_back(to_bf16(x));
    writer.write(i, 0, std::as_bytes(std::span<const Bf16>(values)));
  }
  writer.finish();
  folder.write("config.json", config_text(shape, ids, StorageScheme{}, {}));
  return {stored.size(), writer.tensor_bytes()};
}

}  // namespace fourfold::checkpoint
