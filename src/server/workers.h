// Threads for what takes long enough to be felt on the server's own: parsing, templates, tokenising, schemas.
// Clients take turns: a client that sends a thousand requests delays its own, not those of others. Work of
// clients that have left is not begun.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/client_shares.h"

namespace fourfold::server {

class Workers {
 public:
  using Clock = std::chrono::steady_clock;

  struct Job {
    std::string client;            // whose turn it takes
    std::size_t bytes;             // what it holds until it has run
    std::function<bool()> wanted;  // asked when its turn comes
    std::function<void(bool wanted)>
        work;  // called either way, so that what it holds goes back where it belongs
  };
  using Answer = ClientShares::Answer;

  struct Status {
    std::size_t waiting = 0;
    std::size_t busy = 0, threads = 0;
    std::int64_t skipped = 0;    // cancelled before they ran
    Clock::duration longest{};   // how long the job that began first has been running
    Clock::duration shortest{};  // and the one that began last; nothing unless all threads are busy
  };

  // bytes_max: of all jobs that wait or run, together; jobs_max: that wait.
  Workers(int thread_count, std::size_t jobs_max, std::size_t bytes_max)
      : bytes_max_(bytes_max),
        bytes_(bytes_max),
        jobs_(jobs_max),
        begun_(static_cast<std::size_t>(thread_count)) {
    for (std::size_t i = 0; i < begun_.size(); ++i) threads_.emplace_back([this, i] { work(i); });
  }
  // Jobs that have not begun are dropped.
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      turns_.clear();
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Answer add(Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return Answer::all_is_taken;
      // A body of any size is read at some time: alone it is taken.
      if (bytes_.all() == 0) job.bytes = std::min(job.bytes, bytes_max_ / 2);
      if (const Answer answer = jobs_.take(job.client, 1); answer != Answer::taken) return answer;
      if (const Answer answer = bytes_.take(job.client, job.bytes); answer != Answer::taken) {
        jobs_.give_back(job.client, 1);
        return answer;
      }
      queue_of(job.client).push_back(std::move(job));
    }
    wake_.notify_one();
    return Answer::taken;
  }

  Status status(Clock::time_point now = Clock::now()) const {
    const std::lock_guard lock(mutex_);
    Status out{.waiting = jobs_.all(), .threads = begun_.size(), .skipped = skipped_};
    Clock::time_point first = now, last = Clock::time_point::min();
    for (const auto& begun : begun_) {
      if (!begun) continue;
      ++out.busy;
      first = std::min(first, *begun);
      last = std::max(last, *begun);
    }
    out.longest = now - first;
    if (out.busy == out.threads && out.busy > 0) out.shortest = now - last;
    return out;
  }

 private:
  using Queue = std::deque<Job>;

  Queue& queue_of(const std::string& client) {
    for (auto& [name, queue] : turns_)
      if (name == client) return queue;
    return turns_.emplace_back(client, Queue()).second;
  }

  // The first job of whoever's turn it is; the client goes to the end of the line.
  Job next() {
    auto [client, queue] = std::move(turns_.front());
    turns_.pop_front();
    Job job = std::move(queue.front());
    queue.pop_front();
    if (!queue.empty()) turns_.emplace_back(std::move(client), std::move(queue));
    jobs_.give_back(job.client, 1);
    return job;
  }

  void work(std::size_t index) {
    pthread_setname_np(pthread_self(), "ff-requests");  // for whoever looks where the time goes
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stopping_ || !turns_.empty(); });
      if (stopping_) return;
      Job job = next();
      begun_[index] = Clock::now();
      lock.unlock();
      const bool wanted = !job.wanted || job.wanted();
      job.work(wanted);
      const std::string client = std::move(job.client);
      const std::size_t bytes = job.bytes;
      job = {};  // with all it holds
      lock.lock();
      begun_[index].reset();
      skipped_ += wanted ? 0 : 1;
      bytes_.give_back(client, bytes);
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<std::pair<std::string, Queue>>
      turns_;  // clients with jobs that wait, in the order of their turns
  std::size_t bytes_max_;
  ClientShares bytes_, jobs_;
  std::vector<std::optional<Clock::time_point>> begun_;  // by thread: what it works on since when
  std::int64_t skipped_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fourfold::server
