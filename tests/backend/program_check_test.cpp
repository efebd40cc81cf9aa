// A sound program has no problems; each kind of damage is named.
#include "backend/program.h"
#include "tests/backend/support.h"

namespace fourfold::backend {
namespace {

void expect_problem(Program program, const std::function<void(Program&)>& damage, const std::string& text) {
  ASSERT_TRUE(problems_of(program).empty()) << problems_of(program).front();
  damage(program);
  const auto problems = problems_of(program);
  ASSERT_FALSE(problems.empty()) << "expected: " << text;
  EXPECT_NE(problems.front().find(text), std::string::npos) << problems.front();
}

TEST(ProgramCheck, NamesEachKindOfDamage) {
  const SmallModel model;
  const Program& sound = model.program;
  expect_problem(
      sound, [](Program& p) { p.main.clear(); }, "main has no ops");
  expect_problem(
      sound, [](Program& p) { std::get<Linear>(p.main[3]).weight = {7}; },
      "main op 3 linear: weight is number 7 of 2");
  expect_problem(
      sound, [](Program& p) { std::get<Embed>(p.main[0]).out = {}; }, "out is number -1 of 3");
  expect_problem(
      sound, [](Program& p) { std::swap(p.main[0], p.main[2]); }, "x is read before it is written");
  expect_problem(
      sound, [](Program& p) { p.main.push_back(p.main[0]); }, "x is written twice");
  expect_problem(
      sound, [](Program& p) { p.values[1].columns = 3; }, "take_logits_rows: out is 3, not 4");
  expect_problem(
      sound, [](Program& p) { p.values[2].columns = 6; }, "weight rows is 5, not 6");
  expect_problem(
      sound, [](Program& p) { p.vocab_size = 9; }, "table rows is 5, not 9");
  expect_problem(
      sound, [](Program& p) { p.main_logits = {0}; }, "main logits: columns is 4, not 5");
  expect_problem(
      sound, [](Program& p) { p.hidden_size = 8; }, "keep_hidden: in is 4, not 8");
}

// Sizes of the ops the small model does not have, one wrong number each.
TEST(ProgramCheck, ComparesTheSizesOfEveryOp) {
  const SmallModel model;
  const std::vector<float> four(4);
  Program base = model.program;
  base.vectors = {{"four", four}};
  base.ropes = {{{1.0}, 1}};
  base.kv_caches = {{"cache", 1, 4, KvFormat::f32}};
  base.delta_states = {{"state", 1, 1, 1, 2, 1}};  // conv_dim 4
  base.expert_sets = {{"set", {{{0}, {1}, {0}}}}};
  base.values.push_back({.name = "wrong", .columns = 7});
  const ResultId wrong{{3}};
  const std::vector<Op> bad{RmsNorm{{0}, {0}, false, 0, wrong},
                            Add{{0}, {0}, wrong},
                            Concat{{0}, {0}, wrong},
                            AllReduce{{0}, wrong},
                            TakeHidden{wrong},
                            HeadNormRope{{0}, VectorId{0}, false, 0, {0}, 1, 4, 4, wrong},
                            Attention{{0}, {0}, 1, 1, wrong},
                            HeadGate{{0}, {0}, 4, wrong},
                            CausalConv{{0}, {0}, {0}, wrong},
                            DeltaRule{{0}, {0}, {0}, {0}, {0}, {0}, wrong},
                            GatedHeadNorm{{0}, {0}, {0}, 0, GateKind::silu, wrong},
                            SwiGlu{{0}, {0}, wrong},
                            TopKExperts{{0}, 2, true, wrong, {{4}}},
                            RunExperts{{0}, {0}, {0}, {0}, wrong},
                            AddGated{{0}, {0}, {0}, wrong}};
  base.values.push_back({.name = "weights", .columns = 2});
  for (const Op& op : bad)
    expect_problem(
        base, [&](Program& p) { p.main.insert(p.main.begin() + 2, op); }, ", not ");
}

// What an op may be without is checked where it is there, and not printed where it is not.
TEST(ProgramCheck, OptionalVectorsGroupsAndColumns) {
  const SmallModel model;
  const std::vector<float> four(4), five(5);
  Program base = model.program;
  base.vectors = {{"four", four}, {"five", five}};
  Linear& head = std::get<Linear>(base.main[3]);
  head.bias = VectorId{1};
  EXPECT_TRUE(problems_of(base).empty()) << problems_of(base).front();
  EXPECT_NE(to_text(base, Pass::main).find("linear(in=asked, weight=head, bias=five)"), std::string::npos);
  const auto with_head = [&](auto change) {
    return [change](Program& p) { change(std::get<Linear>(p.main[3])); };
  };
  expect_problem(base, with_head([](Linear& op) { op.bias = VectorId{0}; }), "bias is 4, not 5");
  expect_problem(base, with_head([](Linear& op) { op.bias = VectorId{2}; }), "bias is number 2 of 2");

  base.values.push_back({.name = "chosen", .columns = 2, .type = ValueType::i32});
  base.values.push_back({.name = "shares", .columns = 2});
  base.values.push_back({.name = "cut", .columns = 3});
  const TopKExperts sound{.logits = {0}, .count = 2, .experts = {{3}}, .weights = {{4}}};
  const auto choose = [&](auto change) {
    return [&sound, change](Program& p) {
      TopKExperts op = sound;
      change(op);
      p.main.insert(p.main.begin() + 1, op);
    };
  };
  Program fine = base;
  choose([](TopKExperts& op) { op.choice_bias = VectorId{0}, op.group_count = 2; })(fine);
  EXPECT_TRUE(problems_of(fine).empty()) << problems_of(fine).front();
  expect_problem(base, choose([](TopKExperts& op) { op.choice_bias = VectorId{1}; }),
                 "choice_bias is 5, not 4");
  expect_problem(base, choose([](TopKExperts& op) { op.group_count = 3; }),
                 "4 experts are not 3 groups of equal length");
  expect_problem(base, choose([](TopKExperts& op) { op.group_count = 2, op.groups_kept = 3; }),
                 "3 groups are kept of 2");
  expect_problem(base, choose([](TopKExperts& op) { op.group_count = op.groups_kept = 4; }),
                 "a group has one expert");
  expect_problem(
      base,
      [](Program& p) {
        p.main.insert(p.main.begin() + 1, TakeColumns{{0}, 2, {{5}}});
      },
      "columns 2 to 5 of 4");
}

TEST(ProgramCheck, SinksWindowsAndBiasesOfExperts) {
  const SmallModel model;
  const std::vector<float> two(2), eight(8), square(16);
  const checkpoint::Matrix matrix{"square", 4, 4, checkpoint::F32Storage{square}, {}};
  Program base = model.program;
  base.vectors = {{"two", two}, {"eight", eight}};
  base.kv_caches = {{"cache", 1, 2, KvFormat::f32}};
  base.matrices.push_back({&matrix, InputFormat::f32});
  const ExpertMatrices expert{{2}, {2}, {2}};
  base.expert_sets = {{"set", {expert, expert}}};
  base.values.push_back({.name = "out", .columns = 4});
  const auto attend = [](auto change) {
    return [change](Program& p) {
      Attention op{.query = {0}, .cache = {0}, .head_count = 2, .scale = 1, .out = {{3}}, .window = 5};
      op.sinks = VectorId{0};
      change(op);
      p.main.insert(p.main.begin() + 1, op);
    };
  };
  const auto run = [](auto change) {
    return [change](Program& p) {
      RunExperts op{{0}, {0}, {0}, {0}, {{3}}, GluKind::clamped, 1.702, 7};
      ExpertSet& set = p.expert_sets.front();
      set.gate_bias = set.up_bias = set.down_bias = VectorId{1};
      change(op, set);
      p.main.insert(p.main.begin() + 1, op);
    };
  };
  for (const auto& change : {std::function<void(Program&)>(attend([](Attention&) {})),
                             std::function<void(Program&)>(run([](RunExperts&, ExpertSet&) {}))}) {
    Program fine = base;
    change(fine);
    EXPECT_TRUE(problems_of(fine).empty()) << problems_of(fine).front();
  }
  expect_problem(base, attend([](Attention& op) { op.sinks = VectorId{1}; }), "sinks is 8, not 2");
  expect_problem(base, attend([](Attention& op) { op.window = -1; }), "a window of -1 positions");
  expect_problem(base, run([](RunExperts&, ExpertSet& set) { set.gate_bias = VectorId{0}; }),
                 "gate_bias is 2, not 8");
  expect_problem(base, run([](RunExperts&, ExpertSet& set) { set.up_bias = VectorId{0}; }),
                 "up_bias is 2, not 8");
  expect_problem(base, run([](RunExperts&, ExpertSet& set) { set.down_bias = VectorId{0}; }),
                 "down_bias is 2, not 8");
  expect_problem(base, run([](RunExperts&, ExpertSet& set) { set.down_bias = VectorId{2}; }),
                 "set is number 2 of 2");
  expect_problem(base, run([](RunExperts& op, ExpertSet&) { op.glu_limit = 0; }), "clamped at 0");
}

// MLA: a cache whose values are in its keys, queries put together head by head, a matrix for each head.
TEST(ProgramCheck, LatentAttention) {
  const SmallModel model;
  Program base = model.program;
  base.kv_caches = {{"cache", 1, 6, KvFormat::f32, 4}};
  base.values.push_back({.name = "turned", .columns = 2});    // 3
  base.values.push_back({.name = "query", .columns = 6});     // 4
  base.values.push_back({.name = "attended", .columns = 4});  // 5
  base.values.push_back({.name = "expanded", .columns = 5});  // 6
  base.values.push_back({.name = "absorbed", .columns = 4});  // 7
  const std::vector<Op> ops{TakeColumns{{0}, 0, {{3}}},
                            WriteKv{{3}, {0}, {0}},
                            Concat{{0}, {3}, {{4}}, 2},
                            Attention{{4}, {0}, 1, 1, {{5}}},
                            HeadLinear{{5}, {1}, 1, false, {{6}}},
                            HeadLinear{{6}, {1}, 1, true, {{7}}}};
  base.main.insert(base.main.begin() + 1, ops.begin(), ops.end());
  EXPECT_EQ(base.kv_caches[0].stored_columns(), 6);
  const auto with = [](std::size_t at, auto change) {
    return [at, change](Program& p) { change(p.main[at]); };
  };
  expect_problem(base, with(2, [](Op& op) { std::get<WriteKv>(op).key = {0}; }), "key is 4, not 2");
  expect_problem(base, with(2, [](Op& op) { std::get<WriteKv>(op).value = {3}; }), "value is 2, not 4");
  expect_problem(base, with(3, [](Op& op) { std::get<Concat>(op).head_count = 4; }),
                 "second over heads is 2, not 0");
  expect_problem(base, with(3, [](Op& op) { std::get<Concat>(op).head_count = 0; }), "0 heads");
  expect_problem(base, with(4, [](Op& op) { std::get<Attention>(op).query = {0}; }), "query is 4, not 6");
  expect_problem(base, with(5, [](Op& op) { std::get<HeadLinear>(op).head_count = 2; }),
                 "out over heads is 1, not 0");
  expect_problem(base, with(5, [](Op& op) { std::get<HeadLinear>(op).transposed = true; }),
                 "weight columns is 4, not 5");
  expect_problem(
      base, [](Program& p) { p.matrices[1].input = InputFormat::nvfp4; }, "for each head is bf16 or f32");
  expect_problem(
      base, [](Program& p) { p.kv_caches[0].latent_dim = 6; }, "write_kv: key is 2, not 0");
  expect_problem(
      model.program,
      [](Program& p) {
        p.kv_caches = {{"cache", 1, 6, KvFormat::f32, 6}};
      },
      "cache: values of 6 columns in keys of 6");
}

}  // namespace
}  // namespace fourfold::backend
