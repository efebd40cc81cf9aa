// Order and collectives of one thread. Memory is in lane_memory.cpp.
#include "sim/lane.h"

#include <algorithm>
#include <bit>

#include "base/format.h"
#include "sim/block.h"
#include "sim/tensor_math.h"

namespace fourfold::sim {

Lane::Lane(Block& block, Thread& thread)
    : block_(block),
      thread_(thread),
      thread_index_(static_cast<int>(thread.id)),
      threads_(block.config().threads),
      block_index_(block.index()),
      blocks_(block.config().blocks) {}

// ---- order ----

namespace {

struct NamedArgs {
  int id;
  int threads;
};
bool meet_named(Block& block, Warp& warp) {
  const auto& args = *static_cast<const NamedArgs*>(warp.args[0]);
  return block.barriers().sync_named(warp, args.id, args.threads, warp.site);
}
bool pass_named(Block& block, Warp& warp) {
  const auto& args = *static_cast<const NamedArgs*>(warp.args[0]);
  block.barriers().arrive_named(warp, args.id, args.threads, warp.site);
  return true;
}

}  // namespace

void Lane::sync_block(Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::sync_block)) return;
  NamedArgs args{0, threads_};
  block_.meet(thread_, Collective::sync_block, site, &args, &meet_named);
}

void Lane::barrier_sync(int id, int threads, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::barrier_sync)) return;
  NamedArgs args{id, threads};
  block_.meet(thread_, Collective::barrier_sync, site, &args, &meet_named);
}

void Lane::barrier_arrive(int id, int threads, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::barrier_arrive)) return;
  NamedArgs args{id, threads};
  block_.meet(thread_, Collective::barrier_arrive, site, &args, &pass_named);
}

void Lane::sync_warp(Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::sync_warp)) return;
  block_.meet(thread_, Collective::sync_warp, site, nullptr, [](Block& block, Warp& warp) {
    block.join_warps(1u << warp.index);
    return true;
  });
}

void Lane::init(void* barrier, int arrivals, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (!block_.skips(site, SyncOp::init)) block_.barriers().init(thread_, barrier, arrivals, site);
}

void Lane::fence_barrier_init(Site at) const {
  if (!block_.skips(block_.sites().intern(at), SyncOp::fence_barrier_init))
    block_.barriers().fence_init(thread_);
}

void Lane::arrive(void* barrier, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (!block_.skips(site, SyncOp::arrive)) block_.barriers().arrive(thread_, barrier, -1, site);
}

void Lane::arrive_expect(void* barrier, int bytes, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::arrive_expect)) return;
  if (bytes < 0)
    block_.fault(FaultKind::barrier_misuse, &thread_, site, format("arrive_expect of {} bytes", bytes));
  const bool forget = block_.skips(site, SyncOp::arrive_expect, MutationKind::no_expect);
  block_.barriers().arrive(thread_, barrier, forget ? 0 : bytes, site);
}

void Lane::wait(void* barrier, std::uint32_t parity, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (!block_.skips(site, SyncOp::wait)) block_.barriers().wait(thread_, barrier, parity, site);
}

void Lane::fence_async_proxy(Site at) const {
  if (!block_.skips(block_.sites().intern(at), SyncOp::fence_async_proxy)) block_.fence(thread_);
}

void Lane::wait_predecessors(Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::wait_predecessors)) return;
  while (block_.predecessor_runs()) [[unlikely]] {
      thread_.looked_at = nullptr;
      thread_.looked_site = site;
      block_.give_way(thread_);
    }
  block_.grid().waited = true;
  thread_.visible = block_.grid().id - 1;
}

void Lane::release_successors(Site at) const {
  if (!block_.skips(block_.sites().intern(at), SyncOp::release_successors))
    block_.release_block(thread_.visible);
}

void Lane::raise_registers(int count, Site at) const {
  block_.meet(
      thread_, Collective::raise_registers, block_.sites().intern(at), &count, [](Block& block, Warp& warp) {
        return block.warpgroups().raise_registers(warp, *static_cast<const int*>(warp.args[0]), warp.site);
      });
}

void Lane::drop_registers(int count, Site at) const {
  block_.meet(thread_, Collective::drop_registers, block_.sites().intern(at), &count,
              [](Block& block, Warp& warp) {
                block.warpgroups().drop_registers(warp, *static_cast<const int*>(warp.args[0]), warp.site);
                return true;
              });
}

// ---- tensor cores ----

namespace {

struct MmaArgs {
  float* d;
  const std::uint32_t* a;
  std::uint32_t b[2];
};
// What 32 lanes hold between them, multiplied.
template <class Rows, class Columns, class... Numbers>
void multiply_fragments(const Warp& warp, Numbers... numbers) {
  const std::uint32_t* a[32];
  std::uint32_t b[32][2];
  float c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& args = *static_cast<const MmaArgs*>(warp.args[lane]);
    a[lane] = args.a;
    b[lane][0] = args.b[0];
    b[lane][1] = args.b[1];
    for (int i = 0; i < 4; ++i) c[output_row(lane, i)][output_column(lane, i)] = args.d[i];
  }
  Rows rows;
  Columns columns;
  gather_rows(a, rows);
  gather_columns(b, columns);
  multiply(rows, columns, c, numbers...);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      static_cast<const MmaArgs*>(warp.args[lane])->d[i] = c[output_row(lane, i)][output_column(lane, i)];
}
bool act_mma_bf16(Block& block, Warp& warp) {
  multiply_fragments<Bf16Rows, Bf16Columns>(warp);
  ++block.stats().mma_bf16;
  return true;
}
bool act_mma_e4m3(Block& block, Warp& warp) {
  multiply_fragments<Fp8Rows, Fp8Columns>(warp, tensor_core::kMmaFp8Bits);
  ++block.stats().mma_e4m3;
  return true;
}

struct Fp4Args {
  Fp4Lane lane;
  int thread_a;
  int thread_b;
};
template <bool Mx>
bool act_mma_fp4(Block& block, Warp& warp) {
  const Fp4Lane* lanes[32];
  for (int lane = 0; lane < 32; ++lane) lanes[lane] = &static_cast<const Fp4Args*>(warp.args[lane])->lane;
  const auto& args = *static_cast<const Fp4Args*>(warp.args[0]);
  if (Mx)
    multiply_mxfp4(lanes, args.thread_a, args.thread_b);
  else
    multiply_nvfp4(lanes, args.thread_a, args.thread_b);
  ++block.stats().mma_fp4;
  return true;
}

}  // namespace

void Lane::mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                    Site at) const {
  MmaArgs args{d, a, {b0, b1}};
  block_.meet(thread_, Collective::mma_bf16, block_.sites().intern(at), &args, &act_mma_bf16);
}

void Lane::mma_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                    Site at) const {
  MmaArgs args{d, a, {b0, b1}};
  block_.meet(thread_, Collective::mma_e4m3, block_.sites().intern(at), &args, &act_mma_e4m3);
}

void Lane::mma_nvfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                     std::uint32_t scale_a, std::uint32_t scale_b, int thread_a, int thread_b,
                     Site at) const {
  Fp4Args args{{d, a, {b0, b1}, scale_a, scale_b}, thread_a, thread_b};
  block_.meet(thread_, Collective::mma_nvfp4, block_.sites().intern(at), &args, &act_mma_fp4<false>);
}

void Lane::mma_mxfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                     std::uint32_t scale_a, std::uint32_t scale_b, int thread_a, int thread_b,
                     Site at) const {
  Fp4Args args{{d, a, {b0, b1}, scale_a, scale_b}, thread_a, thread_b};
  block_.meet(thread_, Collective::mma_mxfp4, block_.sites().intern(at), &args, &act_mma_fp4<true>);
}

void Lane::wgmma_fence(Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::wgmma_fence)) return;
  block_.meet(thread_, Collective::wgmma_fence, site, nullptr, [](Block& block, Warp& warp) {
    block.warpgroups().fence(warp, warp.site);
    return true;
  });
}

namespace {

bool act_wgmma(Block& block, Warp& warp) {
  const WgmmaLane* lanes[32];
  for (int lane = 0; lane < 32; ++lane) lanes[lane] = static_cast<const WgmmaLane*>(warp.args[lane]);
  block.warpgroups().issue(warp, lanes, warp.site);
  return true;
}

}  // namespace

void Lane::wgmma_bf16(int n, float* d, const std::uint32_t (&a)[4], std::uint64_t descriptor, Site at) const {
  WgmmaLane args{WgmmaNumbers::bf16, true, n, d, a, descriptor};
  block_.meet(thread_, Collective::wgmma_bf16, block_.sites().intern(at), &args, act_wgmma);
}

void Lane::wgmma_bf16_columns(int n, float* d, const std::uint32_t (&a)[4], std::uint64_t descriptor,
                              Site at) const {
  WgmmaLane args{WgmmaNumbers::bf16_columns, true, n, d, a, descriptor};
  block_.meet(thread_, Collective::wgmma_bf16_columns, block_.sites().intern(at), &args, act_wgmma);
}

void Lane::wgmma_e4m3(int n, bool adds, float* d, const std::uint32_t (&a)[4], std::uint64_t descriptor,
                      Site at) const {
  WgmmaLane args{WgmmaNumbers::e4m3, adds, n, d, a, descriptor};
  block_.meet(thread_, Collective::wgmma_e4m3, block_.sites().intern(at), &args, act_wgmma);
}

void Lane::wgmma_commit(Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::wgmma_commit)) return;
  block_.meet(thread_, Collective::wgmma_commit, site, nullptr, [](Block& block, Warp& warp) {
    block.warpgroups().commit(warp, warp.site);
    return true;
  });
}

void Lane::wgmma_wait(int pending, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (block_.skips(site, SyncOp::wgmma_wait)) return;
  block_.meet(thread_, Collective::wgmma_wait, site, &pending, [](Block& block, Warp& warp) {
    return block.warpgroups().wait(warp, *static_cast<const int*>(warp.args[0]), warp.site);
  });
}

// ---- exchange ----

namespace {

struct ExchangeArgs {
  std::uint64_t value;
  int lane;  // the other lane, or a mask
  std::uint64_t result;
};
ExchangeArgs& exchange(Warp& warp, int lane) { return *static_cast<ExchangeArgs*>(warp.args[lane]); }

}  // namespace

std::uint64_t Lane::shuffle(std::uint64_t value, int from_lane, Site at) const {
  ExchangeArgs args{value, from_lane & 31, 0};
  block_.meet(thread_, Collective::shuffle, block_.sites().intern(at), &args, [](Block&, Warp& warp) {
    for (int lane = 0; lane < 32; ++lane)
      exchange(warp, lane).result = exchange(warp, exchange(warp, lane).lane).value;
    return true;
  });
  return args.result;
}

std::uint64_t Lane::shuffle_xor(std::uint64_t value, int mask, Site at) const {
  ExchangeArgs args{value, (lane() ^ mask) & 31, 0};
  block_.meet(thread_, Collective::shuffle_xor, block_.sites().intern(at), &args, [](Block&, Warp& warp) {
    for (int lane = 0; lane < 32; ++lane)
      exchange(warp, lane).result = exchange(warp, exchange(warp, lane).lane).value;
    return true;
  });
  return args.result;
}

std::uint32_t Lane::ballot(bool value, Site at) const {
  ExchangeArgs args{value, 0, 0};
  block_.meet(thread_, Collective::ballot, block_.sites().intern(at), &args, [](Block&, Warp& warp) {
    std::uint64_t mask = 0;
    for (int lane = 0; lane < 32; ++lane) mask |= exchange(warp, lane).value << lane;
    for (int lane = 0; lane < 32; ++lane) exchange(warp, lane).result = mask;
    return true;
  });
  return static_cast<std::uint32_t>(args.result);
}

std::uint32_t Lane::max_all(std::uint32_t value, Site at) const {
  ExchangeArgs args{value, 0, 0};
  block_.meet(thread_, Collective::max_all, block_.sites().intern(at), &args, [](Block&, Warp& warp) {
    std::uint64_t largest = 0;
    for (int lane = 0; lane < 32; ++lane) largest = std::max(largest, exchange(warp, lane).value);
    for (int lane = 0; lane < 32; ++lane) exchange(warp, lane).result = largest;
    return true;
  });
  return static_cast<std::uint32_t>(args.result);
}

std::uint32_t Lane::match(std::uint32_t value, Site at) const {
  ExchangeArgs args{value, 0, 0};
  block_.meet(thread_, Collective::match, block_.sites().intern(at), &args, [](Block&, Warp& warp) {
    for (int lane = 0; lane < 32; ++lane) {
      std::uint64_t mask = 0;
      for (int other = 0; other < 32; ++other)
        mask |= static_cast<std::uint64_t>(exchange(warp, other).value == exchange(warp, lane).value)
                << other;
      exchange(warp, lane).result = mask;
    }
    return true;
  });
  return static_cast<std::uint32_t>(args.result);
}

void Lane::check(bool holds, const char* what, Site at) const {
  if (!holds)
    block_.fault(FaultKind::user_check, &thread_, block_.sites().intern(at),
                 format("does not hold: {}", what));
}

}  // namespace fourfold::sim
