// The first words of a connection, of both sides: that each knows the token, that both are the same program,
// and which rank this will be. Nothing else is read from whoever has not proved it, and it has five seconds.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "nodes/frames.h"
#include "nodes/messages.h"
#include "nodes/token.h"

namespace fourfold::nodes {

inline constexpr std::chrono::milliseconds kHandshakeTime{5000};

// The leader does not take this rank: its sentence.
class Refused : public Error {
 public:
  Refused(bool later, const std::string& why) : Error(Code::invalid_request, why), later_(later) {}
  bool later() const { return later_; }  // it may when it is asked again

 private:
  bool later_;
};

struct LeaderWords {
  const Token& token;
  std::string version;
  // The rank that one that has proved itself gets; wanted: -1, any. Throws Refused.
  std::function<Settings(int wanted)> place;
};
// What it was given. Throws LinkLost for whoever leaves, is slow, or does not speak so, and Refused where it
// was told why.
Settings welcome_rank(Socket& socket, const LeaderWords& words);

struct RankWords {
  const Token& token;
  std::string version;
  int wanted = -1;
};
// Throws LinkLost, or Refused.
Settings join_leader(Socket& socket, const RankWords& words);

}  // namespace fourfold::nodes
