// A tiny model written to a folder and opened. The folder lives as long as what is read from it.
#pragma once

#include <optional>

#include "checkpoint/bind.h"
#include "tests/checkpoint/tiny_model.h"

namespace fourfold::checkpoint {

struct Opened {
  explicit Opened(const TinyModel& model) {
    model.write(folder);
    checkpoint.emplace(folder.path());
    config = read_model_config(folder.path());
  }
  BoundModel bind() const { return bind_model(*checkpoint, config); }

  TempFolder folder;
  std::optional<Checkpoint> checkpoint;
  ModelConfig config;
};

struct OpenedAndBound : Opened {
  using Opened::Opened;
  BoundModel bound = bind();
};

}  // namespace fourfold::checkpoint
