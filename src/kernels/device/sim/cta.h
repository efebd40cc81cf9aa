// The simulated GPU as kernels see it: the same members as kernels/device/cuda/cta.h, with the same meaning.
// A kernel is a template over the two. Each member also takes its call site, by default that of the caller,
// which names it in faults, counts its bank conflicts and lets tests remove it (docs/simulator.md).
//
// The storage of wgmma operands (d, a) must live until the wait that covers them; kernels keep them in local
// arrays of the enclosing scope, which the GPU holds in registers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/e4m3.h"
#include "kernels/device/named_barrier.h"
#include "kernels/device/types.h"
#include "sim/lane.h"

namespace fourfold::device {

class SimCta {
 public:
  explicit SimCta(sim::Lane& lane) : lane_(&lane) {}

  // ---- who am I ----
  int thread() const { return lane_->thread(); }
  int lane() const { return lane_->lane(); }
  static constexpr int kWarpArrivals = 1;
  // A collective, as on the GPU: asked for where lanes have parted ways, it would wait for ever.
  int warp(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return static_cast<int>(lane_->shuffle(static_cast<std::uint32_t>(lane_->warp()), 0, {file, line}));
  }
  int threads() const { return lane_->threads(); }
  int block() const { return lane_->block(); }
  int blocks() const { return lane_->blocks(); }
  template <class Storage>
  Storage& shared(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return *static_cast<Storage*>(lane_->shared(sizeof(Storage), alignof(Storage), {file, line}));
  }

  // ---- order ----
  void sync_block(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->sync_block({file, line});
  }
  void sync_warp(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->sync_warp({file, line});
  }
  void barrier_sync(NamedBarrier barrier, int threads, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) const {
    lane_->barrier_sync(static_cast<int>(barrier), threads, {file, line});
  }
  void barrier_arrive(NamedBarrier barrier, int threads, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) const {
    lane_->barrier_arrive(static_cast<int>(barrier), threads, {file, line});
  }
  void init(Mbarrier* barrier, int arrivals, const char* file = __builtin_FILE(),
            int line = __builtin_LINE()) const {
    lane_->init(barrier, arrivals, {file, line});
  }
  void fence_barrier_init(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->fence_barrier_init({file, line});
  }
  void arrive(Mbarrier* barrier, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->arrive(barrier, {file, line});
  }
  void arrive_expect(Mbarrier* barrier, int bytes, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) const {
    lane_->arrive_expect(barrier, bytes, {file, line});
  }
  void wait(Mbarrier* barrier, std::uint32_t parity, const char* file = __builtin_FILE(),
            int line = __builtin_LINE()) const {
    lane_->wait(barrier, parity, {file, line});
  }
  void fence_async_proxy(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->fence_async_proxy({file, line});
  }
  void wait_predecessors(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->wait_predecessors({file, line});
  }
  void release_successors(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->release_successors({file, line});
  }
  template <int Count>
  void raise_registers(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->raise_registers(Count, {file, line});
  }
  template <int Count>
  void drop_registers(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->drop_registers(Count, {file, line});
  }

  // ---- shared memory ---- T has 4, 8 or 16 bytes
  template <class T>
  T load_shared(const T* from, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    Bits<sizeof(T)> value;
    lane_->load_shared(from, &value, sizeof(T), {file, line});
    return std::bit_cast<T>(value);
  }
  template <class T>
  void store_shared(T* to, T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    lane_->store_shared(to, &value, sizeof(T), {file, line});
  }
  U32x4 load_matrix_x4(const void* row, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) const {
    U32x4 registers;
    lane_->load_matrix_x4(row, registers.v, {file, line});
    return registers;
  }

  // ---- global memory ---- T has 4, 8 or 16 bytes (load: also 2; store: also 1 and 2)
  template <class T>
  T load(const T* from, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    Bits<sizeof(T)> value;
    lane_->load_global(from, &value, sizeof(T), {file, line});
    return std::bit_cast<T>(value);
  }
  template <class T>
  T load_stream(const T* from, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    Bits<sizeof(T)> value;
    lane_->load_stream(from, &value, sizeof(T), {file, line});
    return std::bit_cast<T>(value);
  }
  template <class T>
  void store(T* to, T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    lane_->store_global(to, &value, sizeof(T), {file, line});
  }
  void store_release_system(std::uint32_t* to, std::uint32_t value, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) const {
    lane_->store_release(to, value, {file, line});
  }
  std::uint32_t load_acquire_system(const std::uint32_t* from, const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) const {
    return lane_->load_acquire(from, {file, line});
  }
  void give_way() const { lane_->give_way(); }
  std::uint64_t nanoseconds() const { return lane_->nanoseconds(); }
  void prefetch_l2(const void* from, int bytes, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) const {
    lane_->prefetch_l2(from, bytes, {file, line});
  }

  // ---- asynchronous copies, global to shared ----
  void bulk_load(void* to, const void* from, int bytes, Mbarrier* barrier,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->bulk_load(to, from, bytes, barrier, {file, line});
  }
  void copy_16_async(void* to, const void* from, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) const {
    lane_->copy_16_async(to, from, {file, line});
  }
  void copy_4_async(void* to, const void* from, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) const {
    lane_->copy_4_async(to, from, {file, line});
  }
  void copy_arrive(Mbarrier* barrier, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) const {
    lane_->copy_arrive(barrier, {file, line});
  }
  void copy_commit(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->copy_commit({file, line});
  }
  template <int Pending>
  void copy_wait(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->copy_wait(Pending, {file, line});
  }

  // ---- tensor cores ----
  void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->mma_bf16(d, a, b0, b1, {file, line});
  }
  void mma_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->mma_e4m3(d, a, b0, b1, {file, line});
  }
  template <int ThreadA, int ThreadB>
  void mma_nvfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                 std::uint32_t scale_a, std::uint32_t scale_b, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) const {
    static_assert(ThreadA >= 0 && ThreadA < 2 && ThreadB >= 0 && ThreadB < 4);
    lane_->mma_nvfp4(d, a, b0, b1, scale_a, scale_b, ThreadA, ThreadB, {file, line});
  }
  template <int ThreadA, int ThreadB>
  void mma_mxfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                 std::uint32_t scale_a, std::uint32_t scale_b, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) const {
    static_assert(ThreadA >= 0 && ThreadA < 2 && ThreadB >= 0 && ThreadB < 4);
    lane_->mma_mxfp4(d, a, b0, b1, scale_a, scale_b, ThreadA, ThreadB, {file, line});
  }
  std::uint64_t wgmma_descriptor(const void* panel, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) const {
    return wgmma_descriptor_bits(lane_->shared_address(panel, {file, line}));
  }
  std::uint64_t wgmma_columns_descriptor(const void* panel, int panel_bytes,
                                         const char* file = __builtin_FILE(),
                                         int line = __builtin_LINE()) const {
    return wgmma_columns_descriptor_bits(lane_->shared_address(panel, {file, line}), panel_bytes);
  }
  void wgmma_fence(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->wgmma_fence({file, line});
  }
  template <int N>
  void wgmma_bf16(float* d, const std::uint32_t (&a)[4], std::uint64_t b, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) const {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0);
    lane_->wgmma_bf16(N, d, a, b, {file, line});
  }
  template <int N>
  void wgmma_bf16_columns(float* d, const std::uint32_t (&a)[4], std::uint64_t b,
                          const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    static_assert(N >= 64 && N <= 256 && N % 64 == 0);
    lane_->wgmma_bf16_columns(N, d, a, b, {file, line});
  }
  template <int N, bool Adds>
  void wgmma_e4m3(float* d, const std::uint32_t (&a)[4], std::uint64_t b, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) const {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0);
    lane_->wgmma_e4m3(N, Adds, d, a, b, {file, line});
  }
  void wgmma_commit(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->wgmma_commit({file, line});
  }
  template <int Pending>
  void wgmma_wait(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    lane_->wgmma_wait(Pending, {file, line});
  }

  // ---- exchange inside a warp ----
  template <class T>
  T shuffle(T value, int from_lane, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return from_bits<T>(lane_->shuffle(to_bits(value), from_lane, {file, line}));
  }
  template <class T>
  T shuffle_xor(T value, int mask, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return from_bits<T>(lane_->shuffle_xor(to_bits(value), mask, {file, line}));
  }
  std::uint32_t ballot(bool value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return lane_->ballot(value, {file, line});
  }
  std::uint32_t max_all(std::uint32_t value, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) const {
    return lane_->max_all(value, {file, line});
  }
  std::uint32_t match(std::uint32_t value, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) const {
    return lane_->match(value, {file, line});
  }

  template <class T>
  static T keep(T value) {
    return value;
  }

  // ---- numbers ---- correctly rounded (nearest even), never contracted; NaN is 0x7FFFFFFF as on the GPU
  static float fma(float a, float b, float c, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    return settled(std::fma(a, b, c), {file, line}, a, b, c);
  }
  static float mul(float a, float b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return settled(a * b, {file, line}, a, b);
  }
  static float add(float a, float b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return settled(a + b, {file, line}, a, b);
  }
  static float reciprocal(float a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return settled(1.0f / a, {file, line}, a);
  }
  static float sqrt(float a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return settled(std::sqrt(a), {file, line}, a);
  }
  static float min(float a, float b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return a != a && b != b ? max(a, b, file, line) : -max(-a, -b, file, line);
  }
  // The other operand when one is NaN; +0 is larger than -0.
  static float max(float a, float b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (a != a || b != b) settled(kNan, {file, line}, a, b);
    if (a == b) return std::signbit(a) ? b : a;
    if (a != a) return b != b ? kNan : b;
    return b != b || a > b ? a : b;
  }
  static float abs(float a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return settled(std::fabs(a), {file, line}, a);
  }
  // In double precision no accumulator is ever in flight, so there is no poison to look for.
  static double fma_f64(double a, double b, double c) { return std::fma(a, b, c); }
  static double mul_f64(double a, double b) { return a * b; }
  static double add_f64(double a, double b) { return a + b; }
  static double divide_f64(double a, double b) { return a / b; }
  static std::uint32_t pack_bf16(float low, float high, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return round_bf16(settled(low, {file, line}, low)) | round_bf16(settled(high, {file, line}, high)) << 16;
  }
  static std::uint32_t pack_e4m3(float low, float high, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return to_e4m3(settled(low, {file, line}, low)).bits |
           static_cast<std::uint32_t>(to_e4m3(settled(high, {file, line}, high)).bits) << 8;
  }
  static std::uint32_t mul_bf16x2(std::uint32_t a, std::uint32_t b) {
    return mul_bf16(a & 0xFFFFu, b & 0xFFFFu) | mul_bf16(a >> 16, b >> 16) << 16;
  }
  static std::uint32_t twice_low(std::uint32_t a) { return (a & 0xFFFFu) * 0x10001u; }
  static std::uint32_t twice_high(std::uint32_t a) { return (a >> 16) * 0x10001u; }
  static std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i)
      result |= static_cast<std::uint32_t>(bytes >> 8 * (selector >> 4 * i & 7u) & 0xFFu) << 8 * i;
    return result;
  }
  static std::uint32_t rotate_left(std::uint32_t a, int by) { return std::rotl(a, by & 31); }
  static int count_ones(std::uint32_t a) { return std::popcount(a); }
  static int lowest_bit(std::uint32_t a) { return std::countr_zero(a); }

 private:
  template <std::size_t Bytes>
  struct Bits {
    alignas(Bytes) unsigned char byte[Bytes];
  };
  static constexpr float kNan = std::bit_cast<float>(0x7FFFFFFFu);

  template <class T>
  static std::uint64_t to_bits(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
  template <class T>
  static T from_bits(std::uint64_t bits) {
    if constexpr (sizeof(T) == 4) return std::bit_cast<T>(static_cast<std::uint32_t>(bits));
    if constexpr (sizeof(T) == 8) return std::bit_cast<T>(bits);
  }
  // The GPU has one NaN. A NaN that comes from an accumulator in flight is a fault of the kernel.
  template <class... Operands>
  static float settled(float result, sim::Site at, Operands... operands) {
    if (result == result) [[likely]]
      return result;
    if ((sim::is_poison(operands) || ...)) sim::used_poison(at);
    return kNan;
  }
  static std::uint32_t round_bf16(float value) {
    if (value != value) return 0x7FFFu;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  }
  // value / 2^drop to nearest even; value has at most 16 bits.
  static std::uint32_t shift_rounded(std::uint32_t value, int drop) {
    if (drop <= 0) return value << -drop;
    if (drop > 17) return 0;
    const std::uint32_t half = 1u << (drop - 1);
    return (value + half - 1 + (value >> drop & 1u)) >> drop;
  }
  // In whole numbers: kernels multiply codes scaled far into the subnormals, where floating-point hardware is
  // slow.
  static std::uint32_t mul_bf16(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t sign = (a ^ b) & 0x8000u;
    const int exponent_a = static_cast<int>(a >> 7 & 0xFFu), exponent_b = static_cast<int>(b >> 7 & 0xFFu);
    const bool zero = (a & 0x7FFFu) == 0 || (b & 0x7FFFu) == 0;
    if (exponent_a == 255 || exponent_b == 255) {
      const bool nan = (a & 0x7FFFu) > 0x7F80u || (b & 0x7FFFu) > 0x7F80u || zero;
      return nan ? 0x7FFFu : sign | 0x7F80u;
    }
    if (zero) return sign;
    const std::uint32_t product =
        (exponent_a ? (a & 0x7Fu) | 0x80u : a & 0x7Fu) * (exponent_b ? (b & 0x7Fu) | 0x80u : b & 0x7Fu);
    // product * 2^(scale - 133): 2^-133 is the last place of a subnormal.
    const int scale = (exponent_a ? exponent_a : 1) + (exponent_b ? exponent_b : 1) - 135;
    const int exponent =
        scale + static_cast<int>(std::bit_width(product)) - 8;  // 0: in the last place of 2^-126
    if (exponent <= 0) return sign | shift_rounded(product, -scale);
    // Eight significant bits; a carry moves into the exponent by itself.
    const std::uint32_t significand = shift_rounded(product, static_cast<int>(std::bit_width(product)) - 8);
    const std::uint32_t result = (static_cast<std::uint32_t>(exponent) << 7) + significand;
    return sign | (result >= 0x7F80u ? 0x7F80u : result);
  }

  sim::Lane* lane_;
};

}  // namespace fourfold::device
