#include "kernels/all_reduce/nccl_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace fourfold::all_reduce {
namespace {

std::string why_not_opened(const std::string& file) {
  try {
    const NcclLibrary library(file, "Do this instead.");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported_op) << error.what();
    return std::string(error.what()) + " | " + error.hint();
  }
  return "it was opened";
}

TEST(NcclLibrary, TellsItsVersionAndSaysWhatFailed) {
  const NcclLibrary library(FOURFOLD_FAKE_NCCL, "");
  EXPECT_EQ(library.file(), FOURFOLD_FAKE_NCCL);
  EXPECT_EQ(library.version(), "2.27.3");
  library.require(kNcclSuccess, "nothing");
  try {
    library.require(5, "adding a part");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device_lost);
    EXPECT_STREQ(error.what(), "NCCL, adding a part: invalid usage (5)");
  }
}

TEST(NcclLibrary, SaysWhyItCannotBeUsed) {
  const std::string missing = why_not_opened("libnccl-not-here.so.2");
  EXPECT_NE(missing.find("NCCL cannot be opened: libnccl-not-here.so.2"), std::string::npos) << missing;
  EXPECT_NE(missing.find("Do this instead."), std::string::npos) << missing;
  const std::string other = why_not_opened("libc.so.6");
  EXPECT_NE(other.find("libc.so.6 has no ncclGetVersion"), std::string::npos) << other;
  for (const char* version : {"2804", "21399", "30100"}) {
    setenv("FAKE_NCCL_VERSION", version, 1);
    const std::string refused = why_not_opened(FOURFOLD_FAKE_NCCL);
    unsetenv("FAKE_NCCL_VERSION");
    EXPECT_NE(refused.find(std::string("calls itself NCCL ") + version), std::string::npos) << refused;
    EXPECT_NE(refused.find("Do this instead."), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace fourfold::all_reduce
