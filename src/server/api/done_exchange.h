// An exchange that runs nothing: its answer is known once the request is read.
#pragma once

#include "base/json_writer.h"
#include "server/exchange.h"

namespace fourfold::server::api {

class DoneExchange final : public Exchange {
 public:
  explicit DoneExchange(std::string body) : body_(std::move(body)) {}
  std::vector<engine::Submission> submissions() override { return {}; }
  bool streams() const override { return false; }
  std::string take(std::size_t, const engine::Delivery&) override { return {}; }
  bool satisfied(std::size_t) const override { return true; }
  bool done() const override { return true; }
  int status() const override { return 200; }
  std::string body() override { return body_; }

 private:
  std::string body_;
};

}  // namespace fourfold::server::api
