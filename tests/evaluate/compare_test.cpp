// compare() passes what is right and refuses what is not: the golden models and the other families against
// Hugging Face's numbers, and the same with something wrong.
#include "evaluate/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "checkpoint/write/output_folder.h"
#include "checkpoint/write/quantize.h"
#include "evaluate/trace.h"
#include "tests/model/made_models.h"
#include "tests/support/long_test.h"
#include "tests/support/ranks.h"

namespace fourfold::evaluate {
namespace {

using checkpoint::TempFolder;
using model::Activations;
using model::family_reference;
using model::Golden;
using model::Loaded;
using model::make_model;

Comparison compare_files(const Loaded& model, const std::filesystem::path& file, Activations activations) {
  const ReferenceFile reference(file, model.program(activations));
  return compare(*model.prepare(activations, trace_capacity(reference.prompts())), reference);
}

std::string first_beyond(const Comparison& result) {
  for (const NumberDifference& item : result.numbers)
    if (!item.fine())
      return format("{} {}: {} of {}, {} of {}", item.prompt, item.what, item.largest, item.largest_bound,
                    item.typical, item.typical_bound);
  for (const TokenDifference& item : result.tokens)
    if (!item.fine())
      return format("{} {}: {} of {} the same", item.prompt, item.what, item.same, item.count);
  return {};
}

class CompareGolden : public testing::TestWithParam<const char*> {};

TEST_P(CompareGolden, EveryActivationFormatIsWithinItsBound) {
  const Golden golden(GetParam());
  const auto file = checkpoint::golden_model(GetParam()) / "reference.safetensors";
  for (const Activations activations : {Activations::f32, Activations::w4a16, Activations::automatic}) {
    const Comparison result = compare_files(golden, file, activations);
    EXPECT_TRUE(result.fine()) << first_beyond(result);
    EXPECT_TRUE(result.hidden_compared);
    EXPECT_TRUE(result.mtp_compared);
    // Two prompts: logits, embedding, four layers, norm, MTP, drafts; greedy and drafts.
    EXPECT_EQ(result.numbers.size(), 2u * 9);
    EXPECT_EQ(result.tokens.size(), 2u * 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CompareGolden,
                         testing::Values("bf16", "compressed", "modelopt", "modelopt_mixed"));

// A prompt of 150 tokens in steps of 64 rows, its MTP rows with them.
TEST(Compare, PromptsInPiecesGiveTheSameNumbers) {
  const Golden golden("bf16");
  const ReferenceFile reference(checkpoint::golden_model("bf16") / "reference.safetensors",
                                golden.program(Activations::f32));
  const auto trace = [&](std::int64_t step_rows) {
    const auto prepared = golden.prepare(Activations::f32, trace_capacity(reference.prompts(), step_rows));
    const Comparison result = compare(*prepared, reference);
    EXPECT_TRUE(result.fine()) << first_beyond(result);
    EXPECT_EQ(result.numbers.size(), 2u * 9);
    return run_trace(*golden.prepare(Activations::f32, prepared->capacity()), reference.prompts().front());
  };
  const Trace whole = trace(0), pieces = trace(64);
  EXPECT_EQ(whole.logits, pieces.logits);
  EXPECT_EQ(whole.hidden, pieces.hidden);
  EXPECT_EQ(whole.final_norm, pieces.final_norm);
  EXPECT_EQ(whole.mtp, pieces.mtp);
  EXPECT_EQ(whole.drafts, pieces.drafts);
  EXPECT_EQ(whole.greedy, pieces.greedy);
}

// Another model's weights are no rounding: the bounds of f32 and w4a16 notice. The two folders hold the same
// random weights before quantisation, so this is about the difference quantising weights makes. The bound of
// w4a4 cannot notice that: FP4 inputs are off by as much as FP4 weights. What holds w4a4 to its rounding is
// CpuW4a4 in cpu/golden_test.cpp.
TEST(Compare, NoticesWeightsThatAreNotTheReferences) {
  const Golden golden("compressed");
  const auto file = checkpoint::golden_model("bf16") / "reference.safetensors";
  EXPECT_FALSE(compare_files(golden, file, Activations::f32).fine());
  EXPECT_FALSE(compare_files(golden, file, Activations::w4a16).fine());
}

// The reference backend with one row of logits of one pass that is no number.
class BrokenRow final : public backend::Prepared {
 public:
  BrokenRow(std::unique_ptr<backend::Prepared> inner, int run, std::size_t row)
      : inner_(std::move(inner)), run_(run), row_(row) {}
  const backend::Program& program() const override { return inner_->program(); }
  const backend::Capacity& capacity() const override { return inner_->capacity(); }
  void run(backend::Pass pass, const backend::Batch& batch, std::span<float> logits) override {
    inner_->run(pass, batch, logits);
    const auto columns = static_cast<std::size_t>(program().vocab_size);
    if (runs_++ == run_)
      for (float& x : logits.subspan(row_ * columns, columns)) x = std::numeric_limits<float>::quiet_NaN();
  }
  std::span<const float> value(backend::ValueId id) const override { return inner_->value(id); }
  std::int64_t resumable_from(std::int32_t slot) const override { return inner_->resumable_from(slot); }

 private:
  std::unique_ptr<backend::Prepared> inner_;
  int run_, runs_ = 0;
  std::size_t row_;
};

TEST(Compare, NoticesRowsThatAreNoNumbers) {
  const Golden golden("bf16");
  const ReferenceFile reference(checkpoint::golden_model("bf16") / "reference.safetensors",
                                golden.program(Activations::f32));
  const auto broken = [&](int run, std::size_t row) {
    BrokenRow prepared(golden.prepare(Activations::f32, trace_capacity(reference.prompts())), run, row);
    return compare(prepared, reference);
  };
  const std::size_t last = reference.prompts().front().ids.size() - 1;
  for (const std::size_t row : {std::size_t{0}, last / 2, last}) {  // of the prompt's own pass
    const Comparison result = broken(0, row);
    EXPECT_FALSE(result.fine()) << row;
    EXPECT_TRUE(std::isnan(result.numbers.front().largest)) << row;
    EXPECT_TRUE(std::isnan(result.numbers.front().typical)) << row;
  }
  for (const int run : {1, 2, 3}) EXPECT_FALSE(broken(run, 0).fine()) << "pass " << run;
  EXPECT_TRUE(broken(1'000'000, 0).fine()) << "the wrapper itself changes nothing";
}

// A file's bytes with one number of a tensor changed.
template <class Number>
void change(std::string& bytes, const checkpoint::SafetensorsFile& file, const std::string& name,
            std::size_t index, Number by) {
  // Tensors fill the file to its end.
  const auto begin = file.view(file.entries().front()).bytes.data();
  const auto place = bytes.size() - file.entries().back().end +
                     static_cast<std::size_t>(file.required(name).bytes.data() - begin) + index * sizeof by;
  Number value{};
  std::memcpy(&value, bytes.data() + place, sizeof value);
  value += by;
  std::memcpy(bytes.data() + place, &value, sizeof value);
}

// One number of the reference, off by more than the bound.
TEST(Compare, NoticesOneWrongNumber) {
  TempFolder folder;
  const auto original = checkpoint::golden_model("bf16") / "reference.safetensors";
  std::string bytes = checkpoint::read_file(original);
  change(bytes, checkpoint::SafetensorsFile(original), "short.mtp_draft_logits_f32", 0, 0.01f);
  const Golden golden("bf16");
  const Comparison result =
      compare_files(golden, folder.write("reference.safetensors", bytes), Activations::f32);
  EXPECT_FALSE(result.fine());
  EXPECT_EQ(first_beyond(result).rfind("short draft logits", 0), 0u) << first_beyond(result);
}

// Of a prompt whose last row alone is kept there are no MTP logits before the drafts': nothing is off there.
TEST(Compare, NumbersThatAreNotThereAreFine) {
  TempFolder folder;
  const checkpoint::SafetensorsFile file(checkpoint::golden_model("bf16") / "reference.safetensors");
  std::vector<checkpoint::TestTensor> tensors{
      {"short.rows", "I64", {1}, checkpoint::bytes_of(std::vector<std::int64_t>{4})},
      {"short.mtp_logits_f32", "F32", {0, 320}, {}}};
  for (const std::string name : {"input_ids", "greedy_ids", "mtp_draft_ids", "greedy_gap", "logits_f32",
                                 "hidden_f32", "final_norm_f32", "mtp_draft_logits_f32"}) {
    const checkpoint::TensorView tensor = file.required("short." + name);
    std::string kept(tensor.bytes.size(), '\0');
    file.read(tensor.bytes, std::as_writable_bytes(std::span(kept)));
    const auto sizes = tensor.shape.sizes();
    std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
    if (name == "logits_f32" || name == "hidden_f32" || name == "final_norm_f32") {  // [..., 5 rows, columns]
      const auto row = static_cast<std::size_t>(shape.back()) * sizeof(float);
      shape.rbegin()[1] = 1;
      for (std::size_t at = 0; at < kept.size(); at += row) kept.erase(at, 4 * row);
    }
    tensors.push_back({"short." + name, name.ends_with("_ids") ? "I64" : "F32", shape, kept});
  }
  const Comparison result = compare_files(
      Golden("bf16"), folder.write("reference.safetensors", checkpoint::safetensors_file(tensors)),
      Activations::f32);
  EXPECT_TRUE(result.fine()) << first_beyond(result);
  const auto mtp = std::ranges::find(result.numbers, "mtp logits", &NumberDifference::what);
  ASSERT_NE(mtp, result.numbers.end());
  EXPECT_EQ(mtp->largest, 0);
  EXPECT_EQ(mtp->typical, 0);
}

// Another token than the reference's: right where its best two are nearer than twice the bound.
TEST(Compare, ATokenMayDifferWhereItsLogitsAreNearlyLevel) {
  TempFolder folder;
  const auto original = checkpoint::golden_model("bf16") / "reference.safetensors";
  const checkpoint::SafetensorsFile file(original);
  const Golden golden("bf16");
  const ReferenceFile reference(original, golden.program(Activations::f32));
  const auto prompt = std::ranges::find(reference.prompts(), "short", &PromptReference::name);
  ASSERT_NE(prompt, reference.prompts().end());
  const std::size_t last = prompt->greedy_ids.size() - 1;  // nothing is generated behind it
  for (const auto& [gap, is_fine] : {std::pair(1.9, true), {2.1, false}}) {
    std::string bytes = checkpoint::read_file(original);
    change(bytes, file, "short.greedy_ids", last, std::int64_t{prompt->greedy_ids[last] > 0 ? -1 : 1});
    change(bytes, file, "short.greedy_gap", last,
           static_cast<float>(gap * kExactBound - prompt->greedy_gap[last]));
    const Comparison result =
        compare_files(golden, folder.write("reference.safetensors", bytes), Activations::f32);
    EXPECT_EQ(result.fine(), is_fine) << gap << " " << first_beyond(result);
    std::int64_t undecided = 0;
    for (const TokenDifference& item : result.tokens) undecided += item.undecided;
    EXPECT_EQ(undecided, is_fine ? 1 : 0);
  }
}

TEST(Compare, RefusesFilesOfAnotherModel) {
  TempFolder folder;
  make_model(folder.path() / "model", "tiny", "bf16");  // of the golden models' size, but for the vocabulary
  const Loaded other(folder.path() / "model");
  checkpoint::expect_error(Code::bad_checkpoint, {"long.logits_f32", "[150, 320]", "[150, 640]"}, [&] {
    ReferenceFile(checkpoint::golden_folder() / "bf16/reference.safetensors",
                  other.program(Activations::f32));
  });
  const Golden golden("bf16");
  const auto program = golden.program(Activations::f32);
  checkpoint::expect_error(Code::bad_checkpoint, {"*.input_ids"}, [&] {
    ReferenceFile(checkpoint::golden_folder() / "bf16/model-00001-of-00002.safetensors", program);
  });
  checkpoint::expect_error(Code::io, {"nothing.safetensors"},
                           [&] { ReferenceFile(folder.path() / "nothing.safetensors", program); });
  using Numbers = std::vector<std::int64_t>;
  const auto refused = [&](const Numbers& ids, const Numbers& rows, const std::vector<std::string>& words) {
    const auto file = folder.write(
        "ids.safetensors",
        checkpoint::safetensors_file(
            {{"p.input_ids", "I64", {static_cast<std::int64_t>(ids.size())}, checkpoint::bytes_of(ids)},
             {"p.rows", "I64", {static_cast<std::int64_t>(rows.size())}, checkpoint::bytes_of(rows)}}));
    checkpoint::expect_error(Code::bad_checkpoint, words, [&] { ReferenceFile(file, program); });
  };
  refused({3, 320}, {0, 1}, {"p.input_ids", "token 320", "320"});
  refused({3, 4, 5}, {0, 3}, {"p.rows", "row 3", "there are 3"});
  for (const Numbers& rows : {Numbers{0, 1}, Numbers{1, 1, 2}, Numbers{1, 0, 2}, Numbers{}})
    refused({3, 4, 5}, rows, {"p.rows", "end with 2"});
  refused({}, {}, {"the prompt p has no tokens"});
}

struct FamilyCase {
  const char* shape;
  std::uint64_t seed = 1;
  std::string reference() const { return seed == 1 ? shape : format("{}-seed{}", shape, seed); }
};
void PrintTo(const FamilyCase& family, std::ostream* out) { *out << family.reference(); }

class FamilyShapes : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyShapes, AgreeWithAnIndependentImplementation) {
  TempFolder temp;
  make_model(temp.path() / "model", GetParam().shape, "bf16", GetParam().seed);
  const Loaded model(temp.path() / "model");
  const checkpoint::SafetensorsFile file(family_reference(GetParam().reference()));
  const bool drafts = std::ranges::any_of(file.entries(), [](const checkpoint::TensorEntry& tensor) {
    return tensor.name.ends_with(".mtp_draft_ids");
  });
  for (const Activations activations : {Activations::f32, Activations::w4a16}) {
    const Comparison result = compare_files(model, family_reference(GetParam().reference()), activations);
    EXPECT_TRUE(result.fine()) << first_beyond(result);
    // Where the reference has drafts: transformers does not have every family's MTP layer.
    EXPECT_EQ(result.mtp_compared, drafts);
    EXPECT_EQ(result.tokens.front().count, 8);
  }
}

// Sharded over two ranks, with the same tokens: biases are cut with their rows, a norm over all heads is of
// what the ranks have together, and routers choose alike on both.
TEST_P(FamilyShapes, AgreeOnTwoRanks) {
  TempFolder temp;
  make_model(temp.path() / "model", GetParam().shape, "bf16", GetParam().seed);
  const Loaded model(temp.path() / "model");
  const backend::Program whole = model.program(Activations::f32);
  const ReferenceFile reference(family_reference(GetParam().reference()), whole);
  for (const char* backend : {"reference", "cpu"}) {
    const auto prepared = backend::prepare_sharded(
        model, {.count = 2, .backend = backend, .keep_values = true}, trace_capacity(reference.prompts()));
    const Comparison result = compare(*prepared, whole, reference);
    EXPECT_TRUE(result.fine()) << backend << ": " << first_beyond(result);
    for (const TokenDifference& tokens : result.tokens) EXPECT_EQ(tokens.same, tokens.count) << backend;
  }
}

// Every storage format of every family runs, and its numbers are numbers of a sensible size.
TEST_P(FamilyShapes, RunInEveryFormat) {
  TempFolder temp;
  for (const char* format_name : {"bf16", "modelopt", "modelopt-mixed", "compressed-tensors", "nvfp4"}) {
    make_model(temp.path() / format_name, GetParam().shape, format_name, GetParam().seed);
    const Loaded model(temp.path() / format_name);
    const auto prepared = model.prepare(Activations::automatic, model::kFourSequences);
    const auto rows = step(*prepared, backend::Pass::main, {model::part(0, 0, {1, 2, 3, 500, 5})});
    double squares = 0;
    for (const backend::LogitsRow& row : rows)
      for (const float x : row) squares += static_cast<double>(x) * x;
    const double deviation = std::sqrt(squares / (5.0 * static_cast<double>(model.config.vocab_size)));
    EXPECT_GT(deviation, 1) << format_name;  // a head of gain 3 behind a norm
    EXPECT_LT(deviation, 10) << format_name;
  }
}

// How nearly two rows point the same way.
double cosine(const backend::LogitsRow& a, const backend::LogitsRow& b) {
  double product = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * double{b[i]};
    first += double{a[i]} * double{a[i]};
    second += double{b[i]} * double{b[i]};
  }
  return product / std::sqrt(first * second);
}

// The same weights, quantised: a tenth of each is noise, in a few layers. A scale that is left out or
// matrices that change places turn a row altogether. The middle row, because in some the experts are so
// nearly level that rounding chooses others.
TEST_P(FamilyShapes, QuantisedIsNear) {
  using checkpoint::NameConvention, checkpoint::StoredAs;
  TempFolder temp;
  make_model(temp.path() / "bf16", GetParam().shape, "bf16", GetParam().seed);
  const Loaded plain(temp.path() / "bf16");
  const auto rows_of = [](const Loaded& model) {
    return step(*model.prepare(Activations::automatic, model::kFourSequences), backend::Pass::main,
                {model::part(0, 0, {1, 2, 3, 500, 5})});
  };
  const auto wanted = rows_of(plain);
  for (const NameConvention names : {NameConvention::modelopt, NameConvention::compressed_tensors})
    for (const StoredAs dense : {StoredAs::plain, StoredAs::fp8, StoredAs::nvfp4}) {
      const auto path = temp.path() / format("{}-{}", static_cast<int>(names), static_cast<int>(dense));
      checkpoint::OutputFolder folder(path);
      quantize_checkpoint(
          plain.checkpoint, plain.config,
          {.names = names, .routed = StoredAs::nvfp4, .shared = dense, .attention = dense, .delta = dense},
          folder);
      folder.publish();
      const auto rows = rows_of(Loaded(path));
      std::vector<double> near;
      for (std::size_t i = 0; i < rows.size(); ++i) near.push_back(cosine(rows[i], wanted[i]));
      std::ranges::sort(near);
      EXPECT_GT(near[near.size() / 2], 0.9) << path;
    }
}

// Second seeds are for --long: other numbers, the same shapes.
std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> out = {{"tiny-dense"},       {"tiny-next"},         {"tiny-qwen3-moe"},
                                 {"tiny-glm"},         {"tiny-glm-odd"},      {"tiny-minimax"},
                                 {"tiny-minimax-odd"}, {"tiny-gpt-oss"},      {"tiny-gpt-oss-odd"},
                                 {"tiny-deepseek"},    {"tiny-deepseek-odd"}, {"tiny-kimi"},
                                 {"tiny-mistral"},     {"tiny-mistral-odd"}};
  if (test::wants_all())
    for (const char* shape : {"tiny-glm", "tiny-minimax", "tiny-gpt-oss", "tiny-deepseek", "tiny-mistral"})
      out.push_back({shape, 2});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Tiny, FamilyShapes, testing::ValuesIn(family_cases()));

// Each of gpt-oss's own parts left out, or off by one, is beyond the bounds.
TEST(Compare, NoticesWhatGptOssHasToItself) {
  TempFolder temp;
  make_model(temp.path() / "model", "tiny-gpt-oss", "bf16", 1);
  const Loaded model(temp.path() / "model");
  const ReferenceFile reference(family_reference("tiny-gpt-oss"), model.program(Activations::f32));
  const auto is_fine = [&](auto change) {
    backend::Program program = model.program(Activations::f32);
    for (backend::Op& op : program.main) {
      if (auto* attend = std::get_if<backend::Attention>(&op)) change(program, *attend);
      if (auto* run = std::get_if<backend::RunExperts>(&op)) change(program, *run);
    }
    const auto prepared =
        backend::ReferenceBackend().prepare(std::move(program), trace_capacity(reference.prompts()));
    return compare(*prepared, reference).fine();
  };
  const auto attention = [&](auto change) {
    return is_fine([&](backend::Program& program, auto& op) {
      if constexpr (std::is_same_v<std::decay_t<decltype(op)>, backend::Attention>) {
        change(op);
        program.kv_caches[static_cast<std::size_t>(op.cache.index)].window = op.window;
      }
    });
  };
  const auto experts = [&](auto change) {
    return is_fine([&](backend::Program& program, auto& op) {
      if constexpr (std::is_same_v<std::decay_t<decltype(op)>, backend::RunExperts>)
        change(op, program.expert_sets[static_cast<std::size_t>(op.set.index)]);
    });
  };
  EXPECT_TRUE(attention([](backend::Attention&) {}));
  EXPECT_FALSE(attention([](backend::Attention& op) { op.sinks = {}; }));
  EXPECT_FALSE(attention([](backend::Attention& op) { op.window = 0; }));
  EXPECT_FALSE(attention([](backend::Attention& op) { op.window += op.window != 0; }));
  using Run = backend::RunExperts;
  using Set = backend::ExpertSet;
  EXPECT_FALSE(experts([](Run&, Set& set) { set.gate_bias = {}; }));
  EXPECT_FALSE(experts([](Run&, Set& set) { set.up_bias = {}; }));
  EXPECT_FALSE(experts([](Run&, Set& set) { set.down_bias = {}; }));
  EXPECT_FALSE(experts([](Run&, Set& set) { std::swap(set.gate_bias, set.up_bias); }));
  EXPECT_FALSE(experts([](Run& op, Set&) { op.glu = backend::GluKind::plain; }));
  EXPECT_FALSE(experts([](Run& op, Set&) { op.glu_alpha = 1.7; }));
  EXPECT_FALSE(experts([](Run& op, Set&) { op.glu_limit = 8; }));
}

// gpt-oss as it is released, blocks and scales of MXFP4: on both backends, and on ranks that cut experts'
// columns (half a record each, or two records and one) or share out whole experts.
TEST(Compare, GptOssInMxfp4) {
  TempFolder temp;
  for (const char* shape : {"tiny-gpt-oss", "tiny-gpt-oss-odd"}) {
    make_model(temp.path() / shape, shape, "mxfp4", 1);
    const Loaded model(temp.path() / shape);
    const auto file = family_reference(format("{}-mxfp4", shape));
    for (const Activations activations : {Activations::f32, Activations::w4a16}) {
      const Comparison result = compare_files(model, file, activations);
      EXPECT_TRUE(result.fine()) << first_beyond(result);
    }
    const backend::Program whole = model.program(Activations::f32);
    const ReferenceFile reference(file, whole);
    for (const model::ExpertSharding experts :
         {model::ExpertSharding::automatic, model::ExpertSharding::experts}) {
      const auto prepared = backend::prepare_sharded(
          model, {.count = 2, .experts = experts, .keep_values = true}, trace_capacity(reference.prompts()));
      const Comparison result = compare(*prepared, whole, reference);
      EXPECT_TRUE(result.fine()) << shape << ": " << first_beyond(result);
    }
  }
}

}  // namespace
}  // namespace fourfold::evaluate
