#include "events/endpoint.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fourfold::events {
namespace {

TEST(Endpoint, ListensWhereItSaysSo) {
  const Endpoint any = Endpoint::parse("tcp://*:5557", "--x");
  EXPECT_TRUE(any.listens);
  EXPECT_EQ(any.host, "0.0.0.0");
  EXPECT_EQ(any.port, "5557");
  EXPECT_TRUE(Endpoint::parse("tcp://[::]:0", "--x").listens);
  EXPECT_EQ(Endpoint::parse("tcp://[::]:0", "--x").host, "::");
  EXPECT_TRUE(Endpoint::parse("@tcp://127.0.0.1:5557", "--x").listens);
  EXPECT_FALSE(Endpoint::parse("tcp://127.0.0.1:5557", "--x").listens) << "as vLLM has it";
  EXPECT_FALSE(Endpoint::parse("tcp://indexer.svc:5557", "--x").listens);
}

TEST(Endpoint, RefusesWithTheOptionsName) {
  for (const char* text : {"", "5557", "ipc:///tmp/x", "tcp://", "tcp://*", "tcp://:5557", "tcp://*:",
                           "tcp://*:x", "tcp://*:65536", "tcp://*:-1", "tcp://host:0", "@@tcp://*:1"}) {
    try {
      Endpoint::parse(text, "--kv-events");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_request);
      EXPECT_NE(std::string(error.what()).find("--kv-events"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace fourfold::events
