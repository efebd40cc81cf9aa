// Tables like the store's, for a browser that keeps nothing: they last until the page is left.
export function memoryTables() {
  const boxes = new Map();
  const box = (name) => boxes.get(name) ?? boxes.set(name, new Map()).get(name);
  const ofChat = (rows, chat) => [...rows.values()].filter((value) => value.chat === chat);
  const copy = (value) => (value === undefined ? undefined : structuredClone(value));
  const table = (name) => {
    const rows = box(name);
    return {
      get: async (id) => copy(rows.get(id)),
      put: async (value) => { rows.set(value.id, copy(value)); },
      remove: async (id) => { rows.delete(id); },
      all: async () => copy([...rows.values()]),
      ofChat: async (chat) => copy(ofChat(rows, chat)),
      keysOfChat: async (chat) => ofChat(rows, chat).map((value) => value.id),
    };
  };
  return async (names, mode, work) => work(Object.fromEntries(names.map((name) => [name, table(name)])));
}
