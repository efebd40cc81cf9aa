// Ctrl-C as something to ask about instead of the end of the program, while an object of this class lives.
#pragma once

#include <csignal>

namespace fourfold::cli {

class InterruptWatch {
 public:
  InterruptWatch();   // takes SIGINT; one at a time
  ~InterruptWatch();  // gives it back
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool interrupted() const;
  void clear();
  // Becomes readable with an interrupt: for poll, which a signal between check and wait would not wake.
  int descriptor() const;

 private:
  struct sigaction before_ {};
};

// Makes a closed stdout an error of the write instead of the end of the process.
void ignore_broken_pipes();

}  // namespace fourfold::cli
