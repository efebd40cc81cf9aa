// The probes that have a file of their own.
#pragma once

#include "doctor/probes.h"

namespace fourfold::doctor {

const Probe& driver_probe();
const Probe& gpu_probe();
const Probe& platform_probe();
const Probe& peers_probe();

}  // namespace fourfold::doctor
