// The shared memory of one block: exactly the bytes the launch asked for, and a shadow that remembers who
// touched what. The shadow has one cache line per 16 bytes and is exact to the 4-byte word, the smallest
// access there is.
//
// Judging only: an access that breaks a rule is answered with a Conflict; the block turns it into a Fault
// with names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/clock.h"
#include "sim/fault.h"
#include "sim/site.h"

namespace fourfold::sim {

struct SharedConflict {
  FaultKind kind;
  std::uint32_t offset;     // of the word
  Epoch other = 0;          // the access it collides with; 0 when there is none
  SiteTable::Id site = 0;   // of that access
  bool other_wrote = true;  // or read
};

class SharedMemory {
 public:
  static constexpr std::uint32_t kAlignment = 1024;

  // Forgets everything; the bytes are filled with 0xCD and count as never written.
  void reset(std::uint32_t bytes);
  std::byte* data() const { return data_; }
  std::uint32_t bytes() const { return bytes_; }
  // Whether a raw pointer of the kernel wrote just outside the memory. Checked at the end of a block.
  bool red_zones_intact() const;

  // Whether [offset, offset + bytes) lies inside; offset may be negative.
  bool contains(std::ptrdiff_t offset, std::uint32_t bytes) const {
    return offset >= 0 && static_cast<std::size_t>(offset) + bytes <= bytes_;
  }

  // An ordinary access of 4, 8 or 16 bytes, naturally aligned and inside. True when allowed.
  bool read(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch reader, SiteTable::Id site,
            SharedConflict& conflict);
  bool write(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch writer, SiteTable::Id site,
             SharedConflict& conflict);

  // wgmma reads 16 bytes: the writes must also have reached the async proxy.
  bool read_async(const View& view, std::uint32_t offset, Epoch reader, SiteTable::Id site,
                  SharedConflict& conflict);
  // The copy engine will write whole 16-byte granules; from now on they belong to `writer`.
  bool write_async(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch writer,
                   SiteTable::Id site, SharedConflict& conflict);

  // A copy of 4 or 16 bytes by one thread (cp.async): its words may not be touched until it is settled.
  bool begin_copy(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch writer,
                  SiteTable::Id site, SharedConflict& conflict);
  void settle_copy(std::uint32_t offset, std::uint32_t bytes, Epoch writer);

  // The 8 bytes become a barrier: from now on they are no data.
  bool claim_barrier(const View& view, std::uint32_t offset, Epoch writer, SiteTable::Id site,
                     SharedConflict& conflict);

 private:
  struct Reader {
    Epoch epoch;
    SiteTable::Id site;
    std::uint8_t words;  // mask
    std::uint8_t unused = 0;
  };
  static constexpr unsigned kInlineReaders = 4;
  struct alignas(64) Granule {
    Epoch write[4];
    SiteTable::Id write_site[4];
    std::uint8_t written;    // mask of words
    std::uint8_t barrier;    // mask of words that hold a barrier
    std::uint8_t in_flight;  // mask of words whose cp.async has not been waited for
    std::uint8_t readers;    // in `reader`; more are in spill_[spill - 1]
    std::uint32_t spill;
    Reader reader[kInlineReaders];
  };
  static_assert(sizeof(Granule) == 64);
  // The readers of a granule that many read: found by party, as a thousand threads may read the same sum.
  struct Spill {
    std::vector<Reader> list;
    std::vector<std::uint32_t> newest;        // [party] -> 1 + place of its newest entry in the list, 0: none
    const std::uint32_t* searched = nullptr;  // who knows what this vector says covers no entry of others
    void index(std::size_t place);
    void clear();
  };

  static unsigned words_of(std::uint32_t offset, std::uint32_t bytes) {
    return ((1u << (bytes >> 2)) - 1u) << ((offset >> 2) & 3u);
  }
  bool writes_ordered(const View& view, const Granule& granule, unsigned words, bool must_be_written,
                      std::uint32_t offset, SharedConflict& conflict) const;
  template <class Judge>
  bool every_reader(const Granule& granule, const Judge& judge) const;
  bool reads_ordered(const View& view, const Granule& granule, unsigned words, std::uint32_t offset,
                     SharedConflict& conflict) const;
  bool async_reaches(const View& view, const Granule& granule, std::uint32_t offset,
                     SharedConflict& conflict) const;
  bool reads_complete(const View& view, const Granule& granule, std::uint32_t offset,
                      SharedConflict& conflict) const;
  void note_read(const View& view, Granule& granule, unsigned words, Epoch reader, SiteTable::Id site);
  void spill_read(const View& view, Granule& granule, Reader fresh);
  void note_write(Granule& granule, unsigned words, Epoch writer, SiteTable::Id site);
  void forget_reads(Granule& granule, unsigned words);

  std::unique_ptr<std::byte[]> storage_;
  std::size_t storage_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::uint32_t bytes_ = 0;
  std::vector<Granule> granules_;
  std::vector<Spill> spill_;
  std::vector<std::uint32_t> free_spill_;
};

}  // namespace fourfold::sim
