#include "sim/fiber.h"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace fourfold::sim {
namespace {

struct Player {
  Fiber fiber;
  Fiber* next = nullptr;
  Fiber* host = nullptr;
  int id = 0;
  int rounds = 0;
  std::vector<int>* log = nullptr;
  double sum = 0;
  std::exception_ptr error;
};

// Keeps integers and doubles alive across switches, so that a lost callee-saved register shows.
void play(void* argument) {
  Player& player = *static_cast<Player*>(argument);
  double x = player.id + 0.5, y = player.id * 3.0;
  long a = player.id, b = player.id + 7, c = player.id * 11;
  for (int round = 0; round < player.rounds; ++round) {
    player.log->push_back(player.id);
    Fiber::transfer(player.fiber, *player.next);
    x = x * 1.25 + y;
    y = std::sqrt(x + static_cast<double>(a));
    a += b;
    b ^= c;
    c += a;
  }
  player.sum = x + y + static_cast<double>(a + b + c);
  Fiber::transfer(player.fiber, *player.host, true);
}

double expected(int id, int rounds) {
  double x = id + 0.5, y = id * 3.0;
  long a = id, b = id + 7, c = id * 11;
  for (int round = 0; round < rounds; ++round) {
    x = x * 1.25 + y;
    y = std::sqrt(x + static_cast<double>(a));
    a += b;
    b ^= c;
    c += a;
  }
  return x + y + static_cast<double>(a + b + c);
}

TEST(Fiber, SwitchesRoundAndKeepsItsRegisters) {
  StackPool stacks(64 * 1024);
  Fiber host;
  std::vector<int> log;
  Player players[3];
  for (int i = 0; i < 3; ++i) {
    players[i].next = &players[(i + 1) % 3].fiber;
    players[i].host = &host;
    players[i].id = i;
    players[i].rounds = 40;
    players[i].log = &log;
    players[i].fiber.prepare(stacks.at(static_cast<std::size_t>(i)), static_cast<unsigned>(i), &play,
                             &players[i]);
  }
  Fiber::transfer(host, players[0].fiber);  // player 0 ends first
  Fiber::transfer(host, players[1].fiber);
  Fiber::transfer(host, players[2].fiber);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(players[i].sum, expected(i, 40));
  ASSERT_EQ(log.size(), 120u);
  for (std::size_t i = 0; i < log.size(); ++i) EXPECT_EQ(log[i], static_cast<int>(i % 3));
}

void fail_inside(void* argument) {
  Player& player = *static_cast<Player*>(argument);
  try {
    Fiber::transfer(player.fiber, *player.host);
    throw std::runtime_error("inside fiber " + std::to_string(player.id));
  } catch (...) {
    player.error = std::current_exception();
  }
  Fiber::transfer(player.fiber, *player.host, true);
}

TEST(Fiber, HandsExceptionsToTheHost) {
  StackPool stacks(64 * 1024);
  Fiber host;
  Player players[2];
  for (int life = 0; life < 3; ++life) {  // stacks are reused
    for (int i = 0; i < 2; ++i) {
      players[i].host = &host;
      players[i].id = i;
      players[i].fiber.prepare(stacks.at(static_cast<std::size_t>(i)), 5, &fail_inside, &players[i]);
      Fiber::transfer(host, players[i].fiber);
    }
    for (int i = 0; i < 2; ++i) {
      Fiber::transfer(host, players[i].fiber);
      try {
        std::rethrow_exception(players[i].error);
        FAIL();
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(std::string(error.what()), "inside fiber " + std::to_string(i));
      }
      players[i].error = nullptr;
    }
  }
}

int descend(int depth) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : descend(depth - 1) + frame[0];
}

void overflow(void* argument) {
  Player& player = *static_cast<Player*>(argument);
  player.rounds = descend(100000);
  Fiber::transfer(player.fiber, *player.host, true);
}

TEST(FiberDeathTest, StackOverflowIsNotSilent) {
  EXPECT_DEATH(
      {
        StackPool stacks(64 * 1024);
        Fiber host;
        Player player;
        player.host = &host;
        player.fiber.prepare(stacks.at(0), 0, &overflow, &player);
        Fiber::transfer(host, player.fiber);
      },
      "");
}

TEST(StackPool, GivesDistinctStacks) {
  StackPool stacks(10000);
  EXPECT_GE(stacks.stack_bytes(), 10000u);
  std::vector<Stack> all;
  for (std::size_t i = 0; i < 40; ++i) all.push_back(stacks.at(i));
  for (std::size_t i = 0; i < 40; ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i].low, all[j].low);
  EXPECT_EQ(stacks.at(7).low, all[7].low);
}

}  // namespace
}  // namespace fourfold::sim
