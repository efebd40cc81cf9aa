// A server with an engine and a protocol that are made up: what tests of the transport's manners need.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/cancel.h"
#include "server/service.h"
#include "tests/server/client.h"
#include "text/made_up_tokenizer.h"

namespace fourfold::server {

// Gives every request its max_tokens tokens, one a step.
class FakeEngine final : public EngineClient {
 public:
  FakeEngine(Mailbox& mailbox, std::chrono::microseconds step, std::int64_t queue_max = 1000)
      : mailbox_(mailbox), step_(step), queue_max_(queue_max), thread_([this] { run(); }) {}
  ~FakeEngine() override {
    stop(std::chrono::milliseconds(0));
    thread_.join();
  }

  engine::RequestId submit(engine::Submission submission) override {
    const std::lock_guard lock(mutex_);
    if (stopping_ || static_cast<std::int64_t>(running_.size()) >= queue_max_) {
      ++refused;
      fail(Code::over_capacity, "the queue is full: {} requests", running_.size());
    }
    salts.push_back(submission.cache_salt);
    time_limit = submission.time_limit;
    running_[next_id_] = submission.request.max_tokens;
    return next_id_++;
  }
  void cancel(engine::RequestId id) override {
    const std::lock_guard lock(mutex_);
    if (running_.erase(id) == 0) return;
    ++cancelled;
    ended_.push_back({.id = id, .tokens = {}, .finish = engine::Finish::cancelled, .error = {}, .usage = {}});
  }
  engine::EngineStatus status() const override {
    const std::lock_guard lock(mutex_);
    engine::EngineStatus out;
    out.running = silent ? 0 : static_cast<std::int64_t>(running_.size());
    out.queue_limit = queue_max_;
    out.waiting = out.running;
    out.steps = steps_;
    out.cancelled = cancelled;
    if (broken) out.fault = "the device was lost";
    return out;
  }
  void stop(std::chrono::milliseconds grace) override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    while (hangs) usleep(1000);
    const auto end = std::chrono::steady_clock::now() + grace;
    while (std::chrono::steady_clock::now() < end && status().running > 0) usleep(1000);
    const std::lock_guard lock(mutex_);
    for (const auto& [id, left] : running_)
      ended_.push_back(
          {.id = id, .tokens = {}, .finish = engine::Finish::shutdown, .error = {}, .usage = {}});
    running_.clear();
    done_ = true;
  }

  std::atomic<bool> stuck{false};
  std::atomic<bool> broken{false}, hangs{false};  // says so; does not end when told to stop
  std::atomic<bool> silent{false};                // says of nobody that it runs
  std::atomic<int> cancelled{0}, refused{0};
  std::vector<std::string> salts;
  std::optional<std::chrono::milliseconds> time_limit;

 private:
  void run() {
    while (true) {
      std::vector<engine::Delivery> deliveries;
      {
        const std::lock_guard lock(mutex_);
        deliveries = std::exchange(ended_, {});
        if (done_ && deliveries.empty()) return;
        if (!stuck) {
          ++steps_;
          for (auto at = running_.begin(); at != running_.end();) {
            engine::Delivery delivery{.id = at->first, .tokens = {}, .finish = {}, .error = {}, .usage = {}};
            delivery.tokens.emplace_back().token = static_cast<sample::TokenId>(at->second % 100);
            delivery.usage.answer_count = 1;
            const bool last = --at->second <= 0;
            if (last) delivery.finish = engine::Finish::max_tokens;
            deliveries.push_back(std::move(delivery));
            at = last ? running_.erase(at) : std::next(at);
          }
        }
      }
      mailbox_.put(std::move(deliveries));
      std::this_thread::sleep_for(step_);
    }
  }

  Mailbox& mailbox_;
  std::chrono::microseconds step_;
  std::int64_t queue_max_;
  mutable std::mutex mutex_;
  std::map<engine::RequestId, std::int64_t> running_;
  std::vector<engine::Delivery> ended_;
  engine::RequestId next_id_ = 1;
  std::int64_t steps_ = 0;
  bool stopping_ = false, done_ = false;
  std::thread thread_;
};

// The body is "N" or "stream N" or "N xM": N tokens, in pieces, in M choices. "bad" is refused, "crash" is
// our own fault, "odd N" has a field nobody knows, "stop N" is satisfied after three tokens of N, "wait" is
// read once the gate is open, "work" and "look" (base/cancel.h) once nobody waits for it. "long N": an answer
// of N bytes, of which it is known before; it begins with the name of the thread that wrote it.
class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(std::string body) {
    if (body == "bad") fail(Code::invalid_request, "a bad one");
    if (body == "crash") throw std::runtime_error("at 0x7fff in /home/secret");
    if (body.starts_with("odd ")) {
      notes.add(api::NoteKind::field, "odd\r\nSet-Cookie: a");
      body.erase(0, 4);
    }
    if ((streams_ = body.starts_with("stream "))) body.erase(0, 7);
    if ((stops_ = body.starts_with("stop "))) body.erase(0, 5);
    if (body.starts_with("long ")) {
      long_ = std::strtoul(body.c_str() + 5, nullptr, 10);
      body = "1";
    }
    if ((spoiled_ = body.starts_with("spoil "))) body.erase(0, 6);
    if (const std::size_t times = body.find(" x"); times != std::string::npos)
      choices_.resize(std::strtoul(body.c_str() + times + 2, nullptr, 10));
    tokens_ = std::strtol(body.c_str(), nullptr, 10);
  }
  std::vector<engine::Submission> submissions() override {
    std::vector<engine::Submission> out(choices_.size());
    for (engine::Submission& submission : out) submission.request.max_tokens = tokens_;
    return out;
  }
  bool streams() const override { return streams_; }
  std::string take(std::size_t choice, const engine::Delivery& delivery) override {
    Choice& c = choices_[choice];
    std::string out;
    for (const sample::Sampled& token : delivery.tokens) {
      const std::string text = "data: " + std::to_string(token.token) + "\n\n";
      c.text += text;
      if (streams_) out += text;
    }
    c.count += delivery.tokens.size();
    if (delivery.finish != engine::Finish::running) {
      c.ended = true;
      if (delivery.finish == engine::Finish::shutdown) out += "data: shutdown\n\n";
    }
    if (stops_ && c.count >= 3) c.ended = true;
    if (done() && streams_) out += "data: [DONE]\n\n";
    return out;
  }
  bool satisfied(std::size_t choice) const override { return stops_ && choices_[choice].count >= 3; }
  bool done() const override {
    return std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.ended; });
  }
  int status() const override { return 200; }
  std::size_t long_bytes() const override { return long_; }
  std::string body() override {
    if (spoiled_) throw std::runtime_error("at 0x7fff in /home/secret");
    if (long_ > 0) {
      char name[16] = "";
      pthread_getname_np(pthread_self(), name, sizeof name);
      std::string text = name;
      text.resize(long_, 'L');
      return text;
    }
    std::string out;
    for (const Choice& choice : choices_) out += choice.text + "|";
    return out;
  }

 private:
  struct Choice {
    std::string text;
    std::size_t count = 0;
    bool ended = false;
  };
  bool streams_ = false, stops_ = false, spoiled_ = false;
  std::int64_t tokens_ = 0;
  std::size_t long_ = 0;
  std::vector<Choice> choices_{1};
};

inline ServedModel made_up_model() {
  constexpr int kVocabulary = 320;
  return {.names = {"made/up", "other"},
          .created = 1'700'000'000,
          .tokenizer = text::Tokenizer::parse(text::make_tokenizer_json(kVocabulary), "made up"),
          .chat_template = text::ChatTemplate::parse(text::make_chat_template(), "made up"),
          .limits = {.vocab_size = kVocabulary, .position_limit = 1000},
          .defaults = {},
          .stop_ids = {},
          .token_limit = kVocabulary};
}

struct FakeServer {
  explicit FakeServer(std::vector<std::string> keys_given = {}, ServiceOptions options = {},
                      std::chrono::microseconds step = std::chrono::microseconds(300), HttpLimits limits = {},
                      std::int64_t queue_max = 1000)
      : http({.port = 0, .limits = limits}),
        keys(std::move(keys_given), {}),
        runner(mailbox, step, queue_max) {
    options.make_exchange = [this](std::string_view, std::string_view body, const ServedModel&,
                                   const RequestContext& context) {
      if (body == "wait") {
        ++gate_waiting;
        gate.wait(false);
        body = "1";
      }
      if (body == "work") {
        ++working;
        while (!context.cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --working;
        fail(Code::cancelled, "nobody waits");
      }
      if (body == "look") {
        ++working;
        try {
          while (true) CancelScope::look();
        } catch (const Error&) {
          --working;
          throw;
        }
      }
      return std::make_unique<FakeExchange>(std::string(body));
    };
    service.emplace(http, runner, mailbox, model, keys, ServerFacts{.version = "1.2.3", .backend = "fake"},
                    std::move(options));
    http.listen();
    thread = std::thread([this] { http.run(*service); });
  }
  ~FakeServer() {
    open_gate();
    http.post([this] { http.stop(); });
    thread.join();
    service.reset();
  }
  Reply ask(std::string_view request) const { return server::ask(http.port(), request); }
  // Requests whose body is "wait" are being read until then.
  void open_gate() {
    gate = true;
    gate.notify_all();
  }
  std::string metric(const std::string& name, std::string_view more = "") const {
    const std::string text = ask(get("/metrics", more)).body;
    const std::size_t at = text.find("\n" + name + " ");
    return at == std::string::npos
               ? ""
               : text.substr(at + name.size() + 2, text.find('\n', at + 1) - at - name.size() - 2);
  }

  std::atomic<bool> gate{false};
  std::atomic<int> gate_waiting{0}, working{0};
  HttpServer http;
  ServedModel model = made_up_model();
  ApiKeys keys;
  Mailbox mailbox;
  FakeEngine runner;
  std::optional<Service> service;
  std::thread thread;
};

}  // namespace fourfold::server
