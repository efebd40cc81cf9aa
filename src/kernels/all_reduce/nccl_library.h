// NVIDIA's library for GPUs that talk to each other, opened when it is asked for: its entries, in one table
// for whoever calls it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace fourfold::all_reduce {

struct NcclUniqueId {
  char bytes[128];
};

// ncclConfig_t as it was when it came, in 2.14: newer libraries read what it has, by its size and version,
// and take their defaults for the rest.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

// As nccl.h has them; ncclInProgress came with communicators that do not block, in version 2.14.
inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
inline constexpr int kNcclFloat32 = 7, kNcclSum = 0;

class NcclLibrary {
 public:
  // Throws unsupported_op where the file cannot be opened, has not what is needed, or is of a version this
  // was not written for. hint: what a user who has it not can do.
  NcclLibrary(const std::string& file, const std::string& hint);

  const std::string& file() const { return file_; }
  const std::string& version() const { return version_; }  // "2.27.3"
  // Throws device_lost with the library's own words, unless it is success. what: was done.
  void require(int status, const char* what) const;

  // comm, ranks: ncclComm_t; stream: cudaStream_t.
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int (*comm_init_rank_config)(void** comm, int count, NcclUniqueId id, int rank,
                               NcclConfig* config) = nullptr;
  int (*comm_init_all)(void** ranks, int count, const int* devices) = nullptr;
  int (*comm_destroy)(void* comm) = nullptr;
  int (*comm_abort)(void* comm) = nullptr;
  int (*comm_get_async_error)(void* comm, int* status) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_gather)(const void* in, void* out, std::size_t count, int type, void* comm,
                    void* stream) = nullptr;
  int (*all_reduce)(const void* in, void* out, std::size_t count, int type, int op, void* comm,
                    void* stream) = nullptr;

 private:
  template <class Function>
  void find(const char* name, Function*& entry);

  struct Close {
    void operator()(void* opened) const;
  };
  std::string file_, version_;
  std::unique_ptr<void, Close> library_;
  const char* (*get_error_string_)(int status) = nullptr;
};

}  // namespace fourfold::all_reduce
