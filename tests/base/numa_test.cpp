#include "base/numa.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace fourfold {
namespace {

// A /sys of a test's own.
class Numa : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "numa_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    sys_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(sys_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((sys_ / path).parent_path());
    std::ofstream(sys_ / path) << text << "\n";
  }
  std::filesystem::path sys_;
};

TEST_F(Numa, ADevicesNodeIsRead) {
  write("devices/system/node/online", "0-1");
  write("bus/pci/devices/0000:3b:00.0/numa_node", "1");
  for (const char* name : {"0000:3B:00.0", "0000:3b:00.0", "00000000:3B:00.0"}) {
    const NearMemory near = near_memory(name, sys_);
    EXPECT_EQ(near.node, 1) << name;
    EXPECT_EQ(near.why_not, "");
  }
}

TEST_F(Numa, OneMemoryIsNear) {
  EXPECT_EQ(near_memory("0000:3B:00.0", sys_).node, -1) << "nothing is there";
  write("devices/system/node/online", "0");
  write("bus/pci/devices/0000:3b:00.0/numa_node", "-1");
  const NearMemory near = near_memory("0000:3B:00.0", sys_);
  EXPECT_EQ(near.node, -1);
  EXPECT_EQ(near.why_not, "") << "there is nothing to say";
}

TEST_F(Numa, WhatIsNotKnownIsSaid) {
  write("devices/system/node/online", "0,2-3");
  const std::string missing = near_memory("0000:3B:00.0", sys_).why_not;
  EXPECT_NE(missing.find("0000:3b:00.0/numa_node cannot be read"), std::string::npos) << missing;
  for (const char* node : {"-1", "1", "near"}) {
    write("bus/pci/devices/0000:3b:00.0/numa_node", node);
    const NearMemory near = near_memory("0000:3B:00.0", sys_);
    EXPECT_EQ(near.node, -1);
    EXPECT_NE(near.why_not.find(std::string("says ") + node + ", and the machine has 3 memories (0,2-3)"),
              std::string::npos)
        << near.why_not;
  }
}

TEST(NumaList, IdsAsTheKernelListsThem) {
  EXPECT_EQ(read_id_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(read_id_list("7"), std::vector<int>{7});
  for (const char* bad : {"", "a", "3-1", "1-", "-1", "0,,2", "0-99999999"})
    EXPECT_TRUE(read_id_list(bad).empty()) << bad;
}

TEST(NumaPolicy, APreferenceEndsWithItsObject) {
  EXPECT_FALSE(PreferNode(-1).holds());
  EXPECT_FALSE(PreferNode(1 << 20).holds());
  for (int i = 0; i < 2; ++i) {
    const PreferNode outer(0);  // a sandbox may refuse it: nothing else changes then
    const PreferNode inner(0);
    EXPECT_EQ(outer.holds(), inner.holds());
    std::vector<char> touched(1 << 20, 1);
    EXPECT_EQ(touched.back(), 1);
  }
}

}  // namespace
}  // namespace fourfold
