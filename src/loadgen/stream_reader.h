// A streamed answer of an OpenAI-compatible server, from bytes and the times they came at to a timeline.
#pragma once

#include <string_view>

#include "http/answer_reader.h"
#include "http/event_reader.h"
#include "loadgen/timeline.h"

namespace fourfold::loadgen {

class StreamReader {
 public:
  explicit StreamReader(double sent) { timeline_.sent = sent; }

  // Bytes of the connection. Throws io for what is no such answer.
  void take(std::string_view bytes, double now);
  // The connection has ended. Throws io when the answer had not.
  void close(double now);
  bool done() const { return done_; }
  std::size_t chunk_count() const { return timeline_.chunks.size(); }  // with text, so far

  // How the request ended when nothing was thrown: a status other than 200 is a failure here.
  Timeline finish(double now);
  // As it is so far, ended by a failure.
  Timeline fail_with(std::string failure, double now);

 private:
  void event(std::string_view data, double now);

  http::AnswerReader answer_;
  http::EventReader events_;
  std::string body_;
  std::string refusal_;  // the body of an answer that is no stream
  bool done_ = false;
  Timeline timeline_;
};

}  // namespace fourfold::loadgen
