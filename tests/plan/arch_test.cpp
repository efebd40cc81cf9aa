#include "plan/arch.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "base/error.h"

namespace fourfold::plan {
namespace {

DeviceReport report_of(const ArchFacts& facts) {
  return {.name = "a device of " + std::string(facts.name),
          .cc_major = facts.cc_major,
          .cc_minor = facts.cc_minor,
          .sm_count = 48,
          .smem_bytes_per_block = facts.smem_bytes_per_block,
          .smem_bytes_per_sm = facts.smem_bytes_per_sm,
          .smem_reserved_bytes_per_block = facts.smem_reserved_bytes_per_block,
          .registers_per_sm = facts.registers_per_sm,
          .threads_per_sm = facts.threads_per_sm,
          .blocks_per_sm_max = facts.blocks_per_sm_max};
}

// The numbers people remember, in kilobytes, against the bytes of the table.
TEST(Arch, SharedMemoryIsWhatTheProgrammingGuideSays) {
  constexpr int kKilobyte = 1024;
  EXPECT_EQ(Sm80::smem_bytes_per_block, 163 * kKilobyte);
  EXPECT_EQ(Sm89::smem_bytes_per_block, 99 * kKilobyte);
  EXPECT_EQ(Sm90::smem_bytes_per_block, 227 * kKilobyte);
  EXPECT_EQ(Sm100::smem_bytes_per_block, 227 * kKilobyte);
  EXPECT_EQ(Sm103::smem_bytes_per_block, 227 * kKilobyte);
  EXPECT_EQ(Sm120::smem_bytes_per_block, 99 * kKilobyte);
  EXPECT_EQ(Sm121::smem_bytes_per_block, 99 * kKilobyte);
}

TEST(Arch, TypesAndValuesAreOneTable) {
  EXPECT_EQ(&Sm120::facts, &kSm120);
  EXPECT_EQ(Sm120::name, "sm120");
  EXPECT_EQ(Sm121::cc_minor, 1);
  static_assert(!std::is_same_v<Sm120, Sm121>);
  static_assert(Sm90::has_wgmma && !Sm90::has_fp4_mma);
  static_assert(Sm120::has_fp4_mma && !Sm120::has_wgmma && !Sm120::has_tcgen05);
  static_assert(Sm100::has_tcgen05 && !Sm100::has_fp4_mma);
}

TEST(Arch, NamesAreUniqueAndSpellTheirCapability) {
  for (const ArchFacts* facts : kArchs) {
    EXPECT_EQ(facts->name, "sm" + std::to_string(facts->cc_major) + std::to_string(facts->cc_minor));
    EXPECT_EQ(find_arch(facts->name), facts);
  }
}

TEST(Arch, IsFoundUnderEverySpelling) {
  for (const char* text :
       {"sm120", "SM120", "sm_120", "sm_120f", "sm_120a", "120", "120f", "12.0", "12.0a"}) {
    EXPECT_EQ(find_arch(text), &kSm120) << text;
  }
  EXPECT_EQ(find_arch("sm_90a"), &kSm90);
  EXPECT_EQ(find_arch("8.9"), &kSm89);
  EXPECT_EQ(find_arch("10.3"), &kSm103);
  EXPECT_EQ(find_arch("sm_121f"), &kSm121);
}

TEST(Arch, UnknownNamesFindNothing) {
  for (const char* text : {"", "sm", "sm_", "sm_86", "1.20", "12.00", "12", "sm_120x", "sm_120ff", "sm_80a",
                           "sm_90f", "sm 120", "ssm120", "sm120 ", "blackwell", ".", "12.0.0"}) {
    EXPECT_EQ(find_arch(text), nullptr) << text;
  }
}

TEST(Arch, TheListForErrorMessagesNamesAll) {
  EXPECT_EQ(arch_names(), "sm80, sm89, sm90, sm100, sm103, sm120, sm121");
}

TEST(Arch, AnEqualDeviceHasNoMismatch) {
  for (const ArchFacts* facts : kArchs) {
    EXPECT_TRUE(compare_with_device(*facts, report_of(*facts)).empty());
    EXPECT_NO_THROW(require_device(*facts, report_of(*facts)));
  }
}

TEST(Arch, EveryFieldIsComparedAndBothNumbersAreShown) {
  DeviceReport device = report_of(kSm120);
  device.cc_minor = 1;
  device.smem_bytes_per_block = 50'000;
  device.smem_bytes_per_sm = 60'000;
  device.smem_reserved_bytes_per_block = 2'048;
  device.registers_per_sm = 32'768;
  device.threads_per_sm = 1'024;
  device.blocks_per_sm_max = 16;
  const std::vector<std::string> mismatches = compare_with_device(kSm120, device);
  ASSERT_EQ(mismatches.size(), 7u);
  EXPECT_EQ(mismatches[0], "compute capability: the table of sm120 says 12.0, the device says 12.1");
  EXPECT_EQ(mismatches[1],
            "shared memory bytes per block: the table of sm120 says 101,376, the device says 50,000");
  EXPECT_EQ(mismatches[6], "blocks per SM: the table of sm120 says 24, the device says 16");
}

TEST(Arch, AMismatchRefuses) {
  DeviceReport device = report_of(kSm120);
  device.name = "NVIDIA Imaginary 1";
  device.smem_bytes_per_block = 65'536;
  try {
    require_device(kSm120, device);
    FAIL() << "a device with other numbers was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported_device);
    EXPECT_NE(std::string(error.what()).find("NVIDIA Imaginary 1"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("says 101,376, the device says 65,536"), std::string::npos);
    EXPECT_FALSE(error.hint().empty());
  }
}

}  // namespace
}  // namespace fourfold::plan
