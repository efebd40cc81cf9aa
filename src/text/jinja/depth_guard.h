// Counts how deep the parser stands for as long as it lives.
#pragma once

#include "base/format.h"
#include "text/jinja/parser.h"

namespace fourfold::text::jinja {

class Parser::Depth {
 public:
  explicit Depth(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kDepthMax) parser_.refuse(format("nested deeper than {} levels", kDepthMax));
  }
  ~Depth() { --parser_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Parser& parser_;
};

}  // namespace fourfold::text::jinja
