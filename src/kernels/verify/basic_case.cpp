#include "kernels/verify/basic_case.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <functional>

#include "base/format.h"
#include "kernels/launch/arena.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe_route/launch_route.h"
#include "kernels/moe_tokens/launch_tokens.h"
#include "kernels/record/launch_pack.h"
#include "kernels/reference/layer.h"
#include "kernels/verify/inputs.h"

namespace fourfold::verify {
namespace {

using kernels::Arena;
using kernels::Machine;

Result start(const Machine& machine, const char* kernel, std::string op, std::uint64_t seed) {
  Result result;
  result.kernel = result.row = kernel;
  result.op = std::move(op);
  result.machine = machine.description();
  result.seed = seed;
  return result;
}

// Runs the proof and keeps what it throws as the failure.
Result finish(Result result, const std::function<void(Result&)>& prove) {
  try {
    prove(result);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

// Equal or wrong: no distance is allowed.
void compare_exact(Result& result, double actual, double expected) {
  result.compare(actual, expected, 0.0, actual == expected);
}

// ---- packing ----

void pack_on_host(const record::PackJob& job, bool mxfp4) {
  if (mxfp4)
    record::pack_records<record::Mxfp4>(job);
  else
    record::pack_records<record::Nvfp4>(job);
}

void prove_pack(Machine& machine, const PackCase& test, Result& result) {
  Random random(test.seed);
  const bool gate_up = test.row_order == record::RowOrder::gate_up;
  const std::int64_t rows = gate_up ? test.rows / 2 : test.rows;
  const CheckpointMatrix matrix = random_matrix(random, rows, test.columns, test.mxfp4);
  const CheckpointMatrix up = random_matrix(random, rows, test.columns, test.mxfp4);
  const std::size_t bytes =
      static_cast<std::size_t>(test.rows / record::kRows * (test.columns / record::kColumns)) *
      static_cast<std::size_t>(test.mxfp4 ? record::kRecordBytes<record::Mxfp4>
                                          : record::kRecordBytes<record::Nvfp4>);
  std::vector<std::uint8_t> expected(bytes), actual(bytes);
  record::PackJob job{{matrix.codes.data(), matrix.scales.data()},
                      {up.codes.data(), up.scales.data()},
                      expected.data(),
                      test.rows,
                      test.columns,
                      test.row_order,
                      test.bit_order};
  pack_on_host(job, test.mxfp4);
  Arena arena(machine.memory());
  job.matrix = {arena.upload(matrix.codes, "codes"), arena.upload(matrix.scales, "scales")};
  job.up = {arena.upload(up.codes, "up codes"), arena.upload(up.scales, "up scales")};
  job.records = arena.take<std::uint8_t>(bytes, "records");
  machine.memory().forget(job.records, bytes);
  record::launch_pack(machine, record::find_pack_rows(machine), job, test.mxfp4);
  machine.memory().read(actual.data(), job.records, bytes);
  for (std::size_t i = 0; i < bytes; ++i) compare_exact(result, actual[i], expected[i]);
}

void prove_dense_pack(Machine& machine, const DensePackCase& test, Result& result) {
  Random random(test.seed);
  const bool gate_up = test.row_order == record::RowOrder::gate_up;
  const std::int64_t rows = gate_up ? test.rows / 2 : test.rows;
  const auto matrix_of = [&] {
    if (test.source != record::DenseSource::f32)
      return random_dense(random, rows, test.columns, test.source).bytes;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(4 * rows * test.columns));
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
      const auto value = static_cast<float>(random.normal());
      std::memcpy(bytes.data() + i, &value, 4);
    }
    return bytes;
  };
  const std::vector<std::uint8_t> matrix = matrix_of(), up = matrix_of();
  record::DenseJob job{matrix.data(), up.data(), nullptr,     test.rows,
                       test.columns,  0,         test.source, test.row_order};
  const std::size_t bytes = record::dense_bytes(job);
  std::vector<std::uint8_t> expected(bytes), actual(bytes);
  job.records = expected.data();
  record::pack_dense(job);
  Arena arena(machine.memory());
  job.matrix = arena.upload(matrix, "matrix");
  job.up = arena.upload(up, "up matrix");
  job.records = arena.take<std::uint8_t>(bytes, "records");
  machine.memory().forget(job.records, bytes);
  record::launch_pack_dense(machine, record::find_pack_rows(machine), job);
  machine.memory().read(actual.data(), job.records, bytes);
  for (std::size_t i = 0; i < bytes; ++i) compare_exact(result, actual[i], expected[i]);
}

// ---- tokens ----

void prove_staging(Machine& machine, const TokenCase& test, Result& result) {
  Random random(test.seed);
  const std::vector<Bf16> tokens = random_tokens(random, test.tokens, test.columns);
  Arena arena(machine.memory());
  const auto* from = reinterpret_cast<const std::uint16_t*>(arena.upload(tokens, "tokens"));
  auto* to = arena.take<std::uint16_t>(tokens.size(), "staged tokens");
  machine.memory().forget(to, tokens.size() * 2);
  moe_tokens::launch_stage(machine, moe_tokens::find_token_rows(machine),
                           {from, to, test.tokens * test.columns / 32});
  std::vector<std::uint16_t> staged(tokens.size());
  machine.memory().read(staged.data(), to, staged.size() * 2);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i), row = at / test.columns, column = at % test.columns;
    const std::int64_t place = 2 * moe::staged_pair(static_cast<int>(column / 2)) + column % 2;
    compare_exact(result, staged[static_cast<std::size_t>(row * test.columns + place)], tokens[i].bits);
  }
}

void prove_quantizing(Machine& machine, const TokenCase& test, Result& result) {
  Random random(test.seed);
  const std::vector<Bf16> tokens = random_tokens(random, test.tokens, test.columns);
  const Assignment assignment = random_assignment(random, {3, 0, 13, 8}, static_cast<int>(test.tokens), 8);
  std::vector<float> inverse;
  for (int expert = 0; expert < 4; ++expert)
    inverse.push_back(static_cast<float>(random.uniform(100.0, 1000.0)));
  const std::vector<std::uint8_t> expected =
      token_records(quantize_slots(tokens, test.columns, assignment, inverse));
  Arena arena(machine.memory());
  auto* records = arena.take<std::uint8_t>(expected.size(), "token records");
  machine.memory().forget(records, expected.size());
  moe_tokens::launch_quantize(
      machine, moe_tokens::find_token_rows(machine),
      {reinterpret_cast<const std::uint16_t*>(arena.upload(tokens, "tokens")),
       arena.upload(assignment.tiles, "tiles"),
       arena.upload(std::vector<std::int32_t>{static_cast<std::int32_t>(assignment.tiles.size())},
                    "tile count"),
       arena.upload(assignment.slot_token, "slot tokens"), arena.upload(inverse, "inverse input scales"),
       records, static_cast<std::int32_t>(test.columns / record::kColumns)});
  std::vector<std::uint8_t> actual(expected.size());
  machine.memory().read(actual.data(), records, actual.size());
  for (std::size_t i = 0; i < actual.size(); ++i) compare_exact(result, actual[i], expected[i]);
}

// ---- routing ----

struct HostTables {
  std::vector<std::int32_t> pair_expert, pair_slot, slot_token;
  std::vector<float> pair_weight, slot_weight;
  std::vector<moe::TokenTile> tiles;
};

HostTables route_on(Machine& machine, const RouteCase& test, const std::vector<float>& logits,
                    const std::vector<float>& bias) {
  const auto pairs = static_cast<std::size_t>(test.tokens * test.top_k);
  const auto slots = static_cast<std::size_t>(moe::slot_limit(test.tokens, test.top_k, test.experts));
  const auto tiles =
      static_cast<std::size_t>(moe::tile_limit(test.tokens, test.top_k, test.experts, test.tile_tokens));
  const bool small = test.tokens <= moe_route::kSmallTokens;
  Arena arena(machine.memory());
  moe_route::RouteParams params{};
  params.logits = arena.upload(logits, "logits");
  params.tables = {
      arena.take<std::int32_t>(pairs, "pair experts"), arena.take<float>(pairs, "pair weights"),
      arena.take<std::int32_t>(pairs, "pair slots"),   arena.take<std::int32_t>(slots, "slot tokens"),
      arena.take<float>(slots, "slot weights"),        arena.take<moe::TokenTile>(tiles, "tiles"),
      arena.take<std::int32_t>(1, "tile count")};
  if (!small) {
    const auto chunks = static_cast<std::size_t>(moe_route::chunk_count(test.tokens));
    params.chunk_counts =
        arena.take<std::int32_t>(chunks * static_cast<std::size_t>(test.experts), "chunk counts");
    params.expert_counts = arena.take<std::int32_t>(static_cast<std::size_t>(test.experts), "expert counts");
  }
  params.tokens = test.tokens;
  params.experts = test.experts;
  params.top_k = test.top_k;
  params.tile_tokens = test.tile_tokens;
  params.rule = rule_of(test.routing, test.renormalise,
                        bias.empty() ? nullptr : arena.upload(bias, "bias for choosing"));
  moe_route::launch_route(machine, moe_route::find_route_rows(machine), params);
  HostTables host;
  const auto read = [&](auto& to, const auto* from, std::size_t count) {
    to.resize(count);
    machine.memory().read(to.data(), from, count * sizeof(to[0]));
  };
  std::vector<std::int32_t> tile_count;
  read(host.pair_expert, params.tables.pair_expert, pairs);
  read(host.pair_weight, params.tables.pair_weight, pairs);
  read(host.pair_slot, params.tables.pair_slot, pairs);
  read(tile_count, params.tables.tile_count, 1);
  read(host.tiles, params.tables.tiles,
       std::min(tiles, static_cast<std::size_t>(std::max(0, tile_count[0]))));
  // Only the slots of tiles are written.
  host.slot_token.assign(slots, -1);
  host.slot_weight.assign(slots, -1.0f);
  for (const moe::TokenTile& tile : host.tiles) {
    if (tile.first_slot < 0 || tile.first_slot + tile.count > static_cast<std::int32_t>(slots)) continue;
    const auto first = static_cast<std::size_t>(tile.first_slot),
               count = static_cast<std::size_t>(tile.count);
    machine.memory().read(host.slot_token.data() + first, params.tables.slot_token + first, count * 4);
    machine.memory().read(host.slot_weight.data() + first, params.tables.slot_weight + first, count * 4);
  }
  return host;
}

// Experts and weights as the scalar router gives them; slots in token order within their expert; tiles that
// cover each expert's slots once and hold at most tile_tokens.
void check_tables(Result& result, const RouteCase& test, const std::vector<float>& logits,
                  const std::vector<float>& bias, const HostTables& tables) {
  const moe_route::RouteRule rule = rule_of(test.routing, test.renormalise, bias.data());
  std::vector<std::vector<std::int32_t>> tokens_of(static_cast<std::size_t>(test.experts));
  std::vector<std::vector<std::int32_t>> slots_of(static_cast<std::size_t>(test.experts));
  for (int token = 0; token < test.tokens; ++token) {
    const reference::Route route =
        reference::route(logits.data() + token * test.experts, test.experts, test.top_k, rule);
    for (int rank = 0; rank < test.top_k; ++rank) {
      const auto pair = static_cast<std::size_t>(token * test.top_k + rank),
                 at = static_cast<std::size_t>(rank);
      compare_exact(result, tables.pair_expert[pair], route.experts[at]);
      compare_exact(result, tables.pair_weight[pair], route.weights[at]);
      const auto slot = static_cast<std::size_t>(tables.pair_slot[pair]);
      const bool inside = slot < tables.slot_token.size();
      compare_exact(result, inside ? tables.slot_token[slot] : -1, token);
      compare_exact(result, inside ? tables.slot_weight[slot] : -1.0f, route.weights[at]);
      tokens_of[static_cast<std::size_t>(route.experts[at])].push_back(token);
      slots_of[static_cast<std::size_t>(route.experts[at])].push_back(tables.pair_slot[pair]);
    }
  }
  std::size_t tile = 0;
  for (int expert = 0; expert < test.experts; ++expert) {
    const auto& slots = slots_of[static_cast<std::size_t>(expert)];
    for (std::size_t done = 0; done < slots.size();) {
      const moe::TokenTile at =
          tile < tables.tiles.size() ? tables.tiles[tile++] : moe::TokenTile{-1, -1, 0, 0};
      compare_exact(result, at.expert, expert);
      compare_exact(result, at.first_slot, slots[done]);
      compare_exact(result, at.count >= 1 && at.count <= test.tile_tokens, 1.0);
      compare_exact(result, at.first_slot % moe::kSlotGroup, 0.0);
      if (at.count < 1) return;
      for (int i = 0; i < at.count && done < slots.size(); ++i, ++done)
        compare_exact(result, slots[done], at.first_slot + i);
    }
  }
  compare_exact(result, static_cast<double>(tile), static_cast<double>(tables.tiles.size()));
}

}  // namespace

std::string op_of(const PackCase& test) {
  return fourfold::format("{} {} {}", test.row_order == record::RowOrder::gate_up ? "gate_up" : "plain",
                          test.mxfp4 ? "mxfp4" : "nvfp4",
                          test.bit_order == record::BitOrder::half ? "half" : "fp4");
}
std::string op_of(const DensePackCase& test) {
  constexpr const char* sources[] = {"bf16", "f32", "e4m3"};
  return fourfold::format("{} {}", test.row_order == record::RowOrder::gate_up ? "gate_up" : "plain",
                          sources[static_cast<int>(test.source)]);
}
std::string op_of(const TokenCase& test) { return test.staged ? "staged bf16" : "nvfp4 token records"; }
std::string op_of(const RouteCase& test) {
  return fourfold::format("{} E {} k {} N {}{}{}",
                          test.tokens <= moe_route::kSmallTokens ? "one block" : "in chunks", test.experts,
                          test.top_k, test.tile_tokens, test.renormalise ? "" : " not renormalised",
                          name_of(test.routing));
}

Result run_pack_case(Machine& machine, const PackCase& test) {
  Result result = start(machine, "pack", op_of(test), test.seed);
  result.shape = fourfold::format("{}x{}", test.rows, test.columns);
  return finish(std::move(result), [&](Result& into) { prove_pack(machine, test, into); });
}

Result run_dense_pack_case(Machine& machine, const DensePackCase& test) {
  Result result = start(machine, "pack_dense", op_of(test), test.seed);
  result.shape = fourfold::format("{}x{}", test.rows, test.columns);
  return finish(std::move(result), [&](Result& into) { prove_dense_pack(machine, test, into); });
}

Result run_token_case(Machine& machine, const TokenCase& test) {
  Result result = start(machine, "moe_tokens", op_of(test), test.seed);
  result.shape = fourfold::format("{} tokens of {}", test.tokens, test.columns);
  return finish(std::move(result), [&](Result& into) {
    return test.staged ? prove_staging(machine, test, into) : prove_quantizing(machine, test, into);
  });
}

Result run_route_case(Machine& machine, const RouteCase& test) {
  Result result = start(machine, "moe_route", op_of(test), test.seed);
  result.shape = fourfold::format("tokens {} E {} k {}", test.tokens, test.experts, test.top_k);
  return finish(std::move(result), [&](Result& into) {
    Random random(test.seed);
    std::vector<float> logits;
    // Few distinct values, so that ties are common.
    for (int i = 0; i < test.tokens * test.experts; ++i)
      logits.push_back(
          static_cast<float>(random.below(2) ? random.normal() * 3.0 : static_cast<double>(random.below(3))));
    const std::vector<float> bias = random_choice_bias(random, test.routing, test.experts);
    check_tables(into, test, logits, bias, route_on(machine, test, logits, bias));
  });
}

}  // namespace fourfold::verify
