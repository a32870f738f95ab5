// Changes of the fleet as settings: devices moved, added and removed, and the base station moved.

const rounded = (value) => Math.round(value * 100) / 100;

const positions = (world) => world.devices.map((device) => device.at);

const edits = (state) => state.fleet ?? { moved: {}, removed: [], added: [] };

export function moveDevice(state, world, index, x, y) {
  const device = world.devices[index];
  if (world.file) {
    const now = edits(state);
    const added = now.added.map((one) => (one.id === device.id ? { ...one, x: rounded(x), y: rounded(y) } : one));
    const moved = now.added.some((one) => one.id === device.id)
      ? now.moved : { ...now.moved, [device.id]: [rounded(x), rounded(y)] };
    return { ...state, fleet: { ...now, moved, added } };
  }
  const places = positions(world);
  places[index] = [rounded(x), rounded(y), device.at[2]];
  return { ...state, changes: { ...state.changes, "fleet.positions": places } };
}

export function moveStation(state, world, x, y) {
  const place = [rounded(x), rounded(y), world.station[2]];
  return { ...state, changes: { ...state.changes, "fleet.base_station": place } };
}

const nearest = (world, x, y) => world.devices
  .filter((device) => device.at)
  .reduce((best, device) => {
    const distance = Math.hypot(device.at[0] - x, device.at[1] - y);
    return best && best.distance <= distance ? best : { id: device.id, distance };
  }, null);

function freeName(taken, stem) {
  let count = 1;
  while (taken.has(`${stem}-${count}`)) count += 1;
  return `${stem}-${count}`;
}

// In regions, new devices are a region of their own at the end, so that the others keep their names.
export function addDevice(state, world, regions, x, y) {
  if (world.file) {
    const now = edits(state);
    const like = nearest(world, x, y)?.id ?? world.devices[0].id;
    const id = freeName(new Set([...world.devices.map((device) => device.id), ...now.removed]), "new");
    const original = now.added.find((one) => one.id === like)?.like ?? like;
    return { ...state, fleet: { ...now, added: [...now.added, { id, like: original, x: rounded(x), y: rounded(y) }] } };
  }
  const last = regions.at(-1);
  const place = [rounded(x), rounded(y), 0];
  const next = last.name === "added"
    ? [...regions.slice(0, -1), { ...last, devices: last.devices + 1 }]
    : [...regions, { name: "added", devices: 1, x: [place[0], place[0]], y: [place[1], place[1]] }];
  return {
    ...state,
    changes: { ...state.changes, "fleet.regions": next, "fleet.positions": [...positions(world), place] },
  };
}

export function removeDevice(state, world, regions, index) {
  if (world.devices.length < 2) return state;
  const device = world.devices[index];
  if (world.file) {
    const now = edits(state);
    const moved = Object.fromEntries(Object.entries(now.moved).filter(([id]) => id !== device.id));
    if (now.added.some((one) => one.id === device.id)) {
      return { ...state, fleet: { ...now, moved, added: now.added.filter((one) => one.id !== device.id) } };
    }
    return { ...state, fleet: { ...now, moved, removed: [...now.removed, device.id] } };
  }
  let left = index;
  let found = false;
  const next = regions.map((region) => {
    const here = !found && left < region.devices;
    if (!found) left -= region.devices;
    found ||= here;
    return here ? { ...region, devices: region.devices - 1 } : region;
  }).filter((region) => region.devices > 0);
  const places = positions(world).filter((_, place) => place !== index);
  return { ...state, changes: { ...state.changes, "fleet.regions": next, "fleet.positions": places } };
}
